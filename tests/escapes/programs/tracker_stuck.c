/* The hook's threads are stopped by a tracer, and the program's own thread works on. */
#include "escape.h"
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/* Stops each thread of a process but its first one. */
static void stop_threads(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; (entry = readdir(threads));) {
        pid_t thread = atoi(entry->d_name);
        if (thread <= 0 || thread == pid) continue;
        EXPECT(ptrace(PTRACE_SEIZE, thread, 0, 0) == 0);
        EXPECT(ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0);
        EXPECT(waitpid(thread, NULL, __WALL) == thread);
    }
    closedir(threads);
}

int main(void) {
    int ready[2];
    EXPECT(pipe(ready) == 0);
    pid_t worker = fork();
    if (worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        Gpu gpu = honest_tenant();
        EXPECT(write(ready[1], "1", 1) == 1);
        work(gpu);
        _exit(0);
    }
    char byte;
    EXPECT(read(ready[0], &byte, 1) == 1);
    ATTEMPT();
    stop_threads(worker);
    rest();
    return 0;
}
