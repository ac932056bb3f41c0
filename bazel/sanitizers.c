// What the sanitizers are told about libraries of the system, compiled into every sanitized program and test.
//
// libgrpc, upb, absl and libz are not instrumented. ThreadSanitizer sees their calls to memcpy, malloc and epoll but
// not the atomics between them, so what it says about two accesses inside them means nothing. Our own hand-overs
// through them are marked in common/rpc_core.h; a race between two functions of ours is always reported.
#if defined(__SANITIZE_THREAD__)

const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
    return "called_from_lib:libgrpc.so\n"
           "called_from_lib:libgpr.so\n"
           "called_from_lib:libupb.so\n"
           "called_from_lib:libz.so\n"
           "race:libgrpc.so\n"
           "race:libgpr.so\n"
           "race:libupb.so\n"
           "race:libabsl_\n"
           "race:libz.so\n";
}

#endif
