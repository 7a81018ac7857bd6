/* The static tracepoint of the subject's variant for LTTng. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER dprobes_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "hits_tracepoint.h"

#if !defined(SUBJECT_TRACEPOINT_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define SUBJECT_TRACEPOINT_H
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(dprobes_bench, work, LTTNG_UST_TP_ARGS(long, a, long, b),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(long, a, a)
                                                       lttng_ust_field_integer(long, b, b)))

#endif
#include <lttng/tracepoint-event.h>
