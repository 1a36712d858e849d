/* Ends the supervisor right before the n-th step that it takes, and writes down every step.

   Preloaded into the supervisor alone. A step is a call into libc that changes what a next supervisor finds: a file, a
   name, a mount, a process, a signal, a message to an engine, the kernel's network or a client. The file that ATOLL_KILL_POINTS
   names is shared with the test: see points.py, which has the same layout. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { STEPS_MOST = 4096, STEP_BYTES = 240 };

struct control {
    uint32_t armed, limit, count, fired;
    char steps[STEPS_MOST][STEP_BYTES];
};

static struct control *control;
static pid_t owner;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
/* The step before, and how many steps in a row were the same: half-written files need two, not hundreds. */
static char last[STEP_BYTES];
static int repeated;

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ATOLL_KILL_POINTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        owner = getpid();
        control = found == MAP_FAILED ? NULL : found;
    }
    unsetenv("LD_PRELOAD"); /* what the supervisor starts is not watched */
}

static void step(const char *what, const char *path) {
    if (!control || !__atomic_load_n(&control->armed, __ATOMIC_ACQUIRE) || getpid() != owner)
        return;
    size_t length = strlen(path);
    if (length > 4 && !strcmp(path + length - 4, ".log"))
        return; /* what people are told decides nothing */
    pthread_mutex_lock(&turn);
    char told[STEP_BYTES];
    snprintf(told, sizeof told, "%s %s", what, path);
    repeated = strcmp(told, last) ? 0 : repeated + 1;
    if (repeated < 2) {
        strcpy(last, told);
        uint32_t number = control->count + 1;
        if (number <= STEPS_MOST)
            strcpy(control->steps[number - 1], told);
        __atomic_store_n(&control->count, number, __ATOMIC_RELEASE);
        if (control->limit && number >= control->limit) {
            __atomic_store_n(&control->armed, 0, __ATOMIC_RELEASE);
            __atomic_store_n(&control->fired, 1, __ATOMIC_RELEASE);
            kill(owner, SIGKILL);
            for (;;)
                pause();
        }
    }
    pthread_mutex_unlock(&turn);
}

static int watched(void) {
    return control && __atomic_load_n(&control->armed, __ATOMIC_RELAXED);
}

static void path_of(int fd, char *path, size_t size) {
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void at(const char *what, int dir, const char *name) {
    char path[2048] = "";
    if (!watched())
        return;
    if (dir != AT_FDCWD && name[0] != '/') {
        path_of(dir, path, 1024);
        strcat(path, "/");
    }
    strncat(path, name, 1000);
    step(what, path);
}

/* Files, and the kernel's own in /sys; neither pipes nor what goes to oneself. */
static void on_file(const char *what, int fd) {
    struct stat status;
    char path[1024];
    if (!watched() || fstat(fd, &status) || !S_ISREG(status.st_mode))
        return;
    path_of(fd, path, sizeof path);
    if (strncmp(path, "/memfd:", 7) && strncmp(path, "/proc/", 6))
        step(what, path);
}

static void on_socket(const char *what, int fd) {
    struct sockaddr_storage mine, other;
    socklen_t mine_size = sizeof mine, other_size = sizeof other;
    if (!watched() || getsockname(fd, (void *)&mine, &mine_size))
        return;
    if (mine.ss_family == AF_NETLINK)
        step(what, "netlink");
    else if (mine.ss_family == AF_UNIX) {
        const char *path = ((struct sockaddr_un *)&mine)->sun_path;
        if (mine_size > sizeof(sa_family_t) && path[0])
            step(what, "client");
        else if (!getpeername(fd, (void *)&other, &other_size) && other_size > sizeof(sa_family_t))
            step(what, strrchr(((struct sockaddr_un *)&other)->sun_path, '.') ? "engine" : "socket");
    } else if (mine.ss_family == AF_INET)
        step(what, "agent");
}

#define OPEN(name, ...)                                                                        \
    mode_t mode = 0;                                                                           \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                     \
        va_list rest;                                                                          \
        va_start(rest, flags);                                                                 \
        mode = va_arg(rest, mode_t);                                                           \
        va_end(rest);                                                                          \
    }                                                                                          \
    if (flags & (O_CREAT | O_TRUNC))

int open(const char *path, int flags, ...) {
    OPEN(open) at("open", AT_FDCWD, path);
    return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    OPEN(open64) at("open", AT_FDCWD, path);
    return REAL(open64)(path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    OPEN(openat) at("open", dir, path);
    return REAL(openat)(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    OPEN(openat64) at("open", dir, path);
    return REAL(openat64)(dir, path, flags, mode);
}

#define ON_FILE(result, name, parameters, arguments, fd)                                       \
    result name parameters {                                                                   \
        on_file(#name, fd);                                                                    \
        return REAL(name) arguments;                                                           \
    }
ON_FILE(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), fd)
ON_FILE(ssize_t, writev, (int fd, const struct iovec *data, int count), (fd, data, count), fd)
ON_FILE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t from), (fd, data, size, from), fd)
ON_FILE(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t from), (fd, data, size, from), fd)
ON_FILE(ssize_t, sendfile, (int fd, int in, off_t *from, size_t size), (fd, in, from, size), fd)
ON_FILE(ssize_t, sendfile64, (int fd, int in, off64_t *from, size_t size), (fd, in, from, size), fd)
ON_FILE(ssize_t, copy_file_range, (int in, off64_t *from, int fd, off64_t *to, size_t size, unsigned flags),
        (in, from, fd, to, size, flags), fd)
ON_FILE(int, ftruncate, (int fd, off_t size), (fd, size), fd)
ON_FILE(int, ftruncate64, (int fd, off64_t size), (fd, size), fd)
ON_FILE(int, posix_fallocate, (int fd, off_t from, off_t size), (fd, from, size), fd)
ON_FILE(int, posix_fallocate64, (int fd, off64_t from, off64_t size), (fd, from, size), fd)

#define ON_NAME(name, parameters, arguments, dir, path)                                        \
    int name parameters {                                                                      \
        at(#name, dir, path);                                                                  \
        return REAL(name) arguments;                                                           \
    }
ON_NAME(rename, (const char *old, const char *new), (old, new), AT_FDCWD, new)
ON_NAME(renameat, (int from, const char *old, int to, const char *new), (from, old, to, new), to, new)
ON_NAME(renameat2, (int from, const char *old, int to, const char *new, unsigned flags),
        (from, old, to, new, flags), to, new)
ON_NAME(link, (const char *old, const char *new), (old, new), AT_FDCWD, new)
ON_NAME(linkat, (int from, const char *old, int to, const char *new, int flags), (from, old, to, new, flags), to, new)
ON_NAME(symlink, (const char *text, const char *path), (text, path), AT_FDCWD, path)
ON_NAME(symlinkat, (const char *text, int dir, const char *path), (text, dir, path), dir, path)
ON_NAME(unlink, (const char *path), (path), AT_FDCWD, path)
ON_NAME(unlinkat, (int dir, const char *path, int flags), (dir, path, flags), dir, path)
ON_NAME(rmdir, (const char *path), (path), AT_FDCWD, path)
ON_NAME(mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
ON_NAME(mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode), dir, path)
ON_NAME(truncate, (const char *path, off_t size), (path, size), AT_FDCWD, path)
ON_NAME(mount, (const char *source, const char *path, const char *type, unsigned long flags, const void *data),
        (source, path, type, flags, data), AT_FDCWD, path)
ON_NAME(umount, (const char *path), (path), AT_FDCWD, path)
ON_NAME(umount2, (const char *path, int flags), (path, flags), AT_FDCWD, path)

#define ON_SOCKET(result, name, parameters, arguments)                                         \
    result name parameters {                                                                   \
        on_socket(#name, fd);                                                                  \
        return REAL(name) arguments;                                                           \
    }
ON_SOCKET(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
ON_SOCKET(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
ON_SOCKET(ssize_t, sendto,
          (int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length),
          (fd, data, size, flags, to, length))

int kill(pid_t pid, int number) {
    if (number)
        step("kill", "process");
    return REAL(kill)(pid, number);
}
int killpg(pid_t group, int number) {
    step("kill", "group");
    return REAL(killpg)(group, number);
}
int unshare(int flags) {
    step("unshare", "namespace");
    return REAL(unshare)(flags);
}
int setxattr(const char *path, const char *name, const void *value, size_t size, int flags) {
    at("setxattr", AT_FDCWD, path);
    return REAL(setxattr)(path, name, value, size, flags);
}

/* Python's own door for calls that libc does not have: mounts and signals by descriptor. */
long syscall(long number, ...) {
    long arguments[6];
    va_list rest;
    va_start(rest, number);
    for (int each = 0; each < 6; each++)
        arguments[each] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_pidfd_send_signal)
        step("kill", "pidfd");
    else if (number == SYS_mount_setattr || number == SYS_move_mount || number == SYS_open_tree ||
             number == SYS_fsmount || number == SYS_renameat2)
        step("syscall", "mount");
    return REAL(syscall)(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

/* A child of vfork borrows the stack, so the call must be left by a jump. */
__attribute__((used)) static void before_vfork(void) { step("vfork", "program"); }
__attribute__((used)) static void *real_vfork(void) { return dlsym(RTLD_NEXT, "vfork"); }
#if defined(__x86_64__)
__asm__(".globl vfork\n.type vfork, @function\nvfork:\n"
        "    sub $8, %rsp\n    call before_vfork\n    call real_vfork\n    add $8, %rsp\n    jmp *%rax\n"
        ".size vfork, .-vfork\n");
#else
pid_t vfork(void) {
    before_vfork();
    return fork();
}
#endif
