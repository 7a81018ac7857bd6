//! The style of HTML pages.

/// The style sheet. It names colours once for light and once for dark; charts and tables use the
/// names.
pub(super) const STYLE: &str = "
:root { color-scheme: light dark; --page: #f7f7f5; --card: #ffffff; --ink: #16161a; --soft: #55545a; --faint: #85838c; --line: #e4e3de;
  --warn: #b3261e; --s0: #2a78d6; --s1: #eda100; --s2: #1baf7a; --s3: #8a4fc7; --s4: #e34948; --s5: #0f8a8a; --s6: #a09e98; }
@media (prefers-color-scheme: dark) {
  :root { --page: #121214; --card: #1b1b1f; --ink: #f2f1ee; --soft: #bdbbb5; --faint: #8d8b86; --line: #303036;
    --warn: #ff8a80; --s0: #4b93ec; --s1: #d69a16; --s2: #2bbd88; --s3: #ab82e0; --s4: #ef6f6c; --s5: #35b3b3; --s6: #75736e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.45 system-ui, -apple-system, 'Segoe UI', sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 25px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 12px; }
h3 { font-size: 15px; margin: 22px 0 2px; font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-weight: 600; overflow-wrap: anywhere; }
h3:first-of-type { margin-top: 4px; }
p { margin: 0 0 8px; color: var(--soft); }
code { font: 13px ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; margin-top: 18px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 18px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 23px; font-weight: 600; line-height: 1.25; }
.tile span { color: var(--soft); font-size: 13px; }
.warn, .warn b { color: var(--warn); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; font-size: 13px; text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; min-width: 170px; }
td.sub:first-child { padding-left: 22px; color: var(--soft); }
th:has(.left) { text-align: left; }
.meter { width: 150px; }
.meter i { display: block; height: 10px; border-radius: 2px; background: var(--s0); min-width: 1px; }
.spark { width: 150px; height: 24px; display: block; }
.spark path { fill: var(--s0); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px; padding: 0; list-style: none; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
.chart { display: block; width: 100%; height: auto; }
.chart .grid { stroke: var(--line); } .chart .axis { stroke: var(--faint); }
.chart .mark { stroke: var(--ink); stroke-dasharray: 3 3; }
.chart text { font-size: 12px; } .chart .tick { fill: var(--faint); } .chart .label { fill: var(--ink); stroke: var(--card); stroke-width: 4px; paint-order: stroke; }
.s0 { fill: var(--s0); background: var(--s0); } .s1 { fill: var(--s1); background: var(--s1); } .s2 { fill: var(--s2); background: var(--s2); }
.s3 { fill: var(--s3); background: var(--s3); } .s4 { fill: var(--s4); background: var(--s4); } .s5 { fill: var(--s5); background: var(--s5); }
.s6 { fill: var(--s6); background: var(--s6); }
rect:hover { opacity: .75; }
footer { color: var(--faint); font-size: 13px; margin-top: 18px; }
";
