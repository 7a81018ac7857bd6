//! The probes of a session as metrics.

use crate::support::{Metrics, READ, Session, counting, need, python, script, start_server, target, value};

#[test]
fn counts_and_variables_of_a_session_are_metrics() {
    let module = need!("export", target("server"), "gcc");
    let session = Session::new();
    let (status, _, said) = session.say(&["session", "start", "--export", "prometheus:0"]);
    assert_eq!(status, 0, "{said}");
    let metrics = Metrics::announced(&said);
    let empty = metrics.text();
    assert_eq!((value(&empty, "dprobes_programs"), value(&empty, "dprobes_processes")), (0.0, 0.0));
    assert!(!empty.contains("dprobes_probe_hits"), "{empty}");
    // A second session is not begun, nor does the first one get another address.
    let refused = session.fails(&["session", "start", "--export", "prometheus:0"]);
    assert!(refused.contains("there is a session already"), "{refused}");

    let copy = session.path().join("server");
    std::fs::copy(&module, &copy).expect("room for a copy");
    let mut server = start_server(&copy);
    let program = session.program("count.rpn", &counting(&copy, ["server_work"]));
    session.done(&["insert", &program, "-p", &server.pid().to_string()]);
    let module = copy.to_str().expect("UTF-8");
    let of = format!("{{module=\"{module}\",program=\"0\",point=\"server_work\",major=\"1\",minor=\"1\"}}");
    for turn in 1..=2 {
        assert_eq!(server.ask("call 5"), "done 5");
        let hits = format!("dprobes_probe_hits_total{of}");
        let text = metrics.once(|text| text.contains(&hits) && value(text, &hits) >= f64::from(turn * 5));
        for name in ["hits", "runs"] {
            let sample = format!("dprobes_probe_{name}_total{of}");
            assert_eq!(value(&text, &sample), f64::from(turn * 5), "{text}");
        }
        for name in ["missed", "lost", "ignored"] {
            assert_eq!(value(&text, &format!("dprobes_probe_{name}_total{of}")), 0.0, "{text}");
        }
        let variable =
            format!("dprobes_variable{{module=\"{module}\",program=\"0\",scope=\"local\",index=\"0\"}}");
        assert_eq!(value(&text, &variable), f64::from(turn * 5), "{text}");
        assert_eq!((value(&text, "dprobes_programs"), value(&text, "dprobes_processes")), (1.0, 1.0));
    }
    let text = metrics.text();
    session.done(&["session", "stop"]);
    // It has answered; its end follows.
    while metrics.is_there() {
        std::thread::yield_now();
    }
    let python = need!(
        "export: prometheus",
        python("prometheus_client"),
        "the Python module prometheus_client (DPROBES_PYTHON)"
    );
    let file = session.program("metrics", &text);
    let scratch = crate::support::Scratch::new();
    let read = script(&python, &scratch, &READ.replace("sys.argv[1]", &format!("{file:?}")));
    let line = format!(
        "counter dprobes_probe_hits_total major='1' minor='1' module='{module}' point='server_work' program='0' 10.0"
    );
    assert!(read.lines().any(|read| read == line), "{read}");
}
