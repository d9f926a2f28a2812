/* faults: sends each of the hook's threads what a fault would be, and the process what is none; faults meet the program's handler on the
 * thread that they were sent to, the rest one of the program's own threads. Prints the number of the hook's threads. */
#include "common.h"
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>

static sem_t handled;
static volatile sig_atomic_t number, thread;

static void note(int signal) {
    number = signal;
    thread = (sig_atomic_t)syscall(SYS_gettid);
    sem_post(&handled);
}

/* Whether the handler has run for `signal`, on this thread. */
static int met(int signal, pid_t on) {
    while (sem_wait(&handled) != 0) {
    }
    return number == signal && thread == on;
}

static int is_ours(const char *task) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int read = fscanf(file, "%31s", name);
    fclose(file);
    return read == 1 && strncmp(name, "sluice-", 7) == 0;
}

int main(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    static const int others[] = {SIGTERM, SIGUSR1, SIGALRM, SIGCHLD};
    struct sigaction action = {.sa_handler = note};
    int threads = 0;
    Gpu gpu = open_gpu();
    CUdeviceptr data = numbers(64);
    DO(launch(gpu.mix, data, 64, 10, NULL));
    DO(cuCtxSynchronize());
    sem_init(&handled, 0, 0);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) sigaction(faults[i], &action, NULL);
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) sigaction(others[i], &action, NULL);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        if (!is_ours(task->d_name)) continue;
        threads++;
        for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
            pid_t to = (pid_t)atoi(task->d_name);
            if (syscall(SYS_tgkill, getpid(), to, faults[i]) != 0) exit(EXIT_BROKEN);
            EXPECT(met(faults[i], to));
        }
    }
    closedir(tasks);
    /* With this thread's door shut a signal would go to any other that takes it. */
    sigset_t all, before;
    sigfillset(&all);
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        pthread_sigmask(SIG_SETMASK, &all, &before);
        kill(getpid(), others[i]);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        EXPECT(met(others[i], getpid()));
    }
    /* The hook is as well as before. */
    DO(launch(gpu.mix, data, 64, 10, NULL));
    EXPECT(mixed(data, 64, 2));
    SAY("%d", threads);
    return 0;
}
