# Counts or logs the calls of a function with Frida: interceptor.py PID ADDRESS count|log
# Prints "ready" when it is in place, and "hits N" when its input ends.
#
# The callback is C, which Frida compiles inside of the process. Its compiler has no atomic increments: threads that hit
# at once lose counts. What it logs goes into a ring that nobody reads.
import sys

import frida

CODE = {
    "count": """
        #include <gum/guminterceptor.h>
        extern volatile long hits;
        void enter(GumInvocationContext *context) { hits++; }
    """,
    "log": """
        #include <gum/guminterceptor.h>
        extern volatile long hits;
        extern long ring[];
        extern long g_get_monotonic_time(void);
        void enter(GumInvocationContext *context) {
            long *record = &ring[(hits++ & 65535) * 4];
            record[0] = g_get_monotonic_time();
            record[1] = gum_invocation_context_get_thread_id(context);
            record[2] = (long)gum_invocation_context_get_nth_argument(context, 0);
            record[3] = (long)gum_invocation_context_get_nth_argument(context, 1);
        }
    """,
}
pid, address, task = int(sys.argv[1]), sys.argv[2], sys.argv[3]
session = frida.attach(pid)
script = session.create_script(
    """
    // Global, because what nothing refers to is freed, though its code is in use.
    globalThis.hits = Memory.alloc(8);
    globalThis.ring = Memory.alloc(65536 * 32);
    globalThis.compiled = new CModule(%r, { hits: globalThis.hits, ring: globalThis.ring });
    Interceptor.attach(ptr('%s'), { onEnter: globalThis.compiled.enter });
    Interceptor.flush();
    rpc.exports = { hits() { return globalThis.hits.readU64().toNumber(); } };
    """
    % (CODE[task], address)
)
script.load()
print("ready", flush=True)
sys.stdin.read()
print("hits", script.exports_sync.hits(), flush=True)
session.detach()
