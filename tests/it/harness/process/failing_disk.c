/* A disk that fails, for one process: loaded in front of the C library (LD_PRELOAD), it lets writes and flushes of files below
   one folder fail, or ends the process at one of them. What fails now is said by a file that both sides map. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WORKS = 0, FULL = 1, NO_FLUSH = 2, ENDS = 3, FILLS = 4 };

struct control {
    int mode;  /* one of the above */
    int steps; /* ENDS: at this write or flush, FILLS: full from this write on, counted down */
    int hits;  /* how often something failed */
};

static volatile struct control *control;
static const char *folder, *except;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAILING_DISK_CONTROL");
    folder = getenv("FAILING_DISK_FOLDER");
    except = getenv("FAILING_DISK_EXCEPT");
    if (!path || !folder) return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) abort();
    control = map;
}

static int is_below(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0 && !(except && strstr(path, except));
}

/* Whether this call fails: `mode` is the mode in which it does. */
static int fails(int file, int mode) {
    if (!control || control->mode == WORKS) return 0;
    int kept = errno, failed = 0;
    if (control->mode == FILLS && mode == FULL && is_below(file) && __sync_sub_and_fetch(&control->steps, 1) == 0) control->mode = FULL;
    if (control->mode == ENDS) {
        if (is_below(file) && __sync_sub_and_fetch(&control->steps, 1) == 0) _exit(86);
    } else if (control->mode == mode && is_below(file)) {
        __sync_add_and_fetch(&control->hits, 1);
        failed = 1;
    }
    errno = kept;
    return failed;
}

#define REAL(type, name, ...)                                        \
    static type (*real)(__VA_ARGS__);                                \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define FAIL(code) do { errno = code; return -1; } while (0)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (fails(file, FULL)) FAIL(ENOSPC);
    return real(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (fails(file, FULL)) FAIL(ENOSPC);
    return real(file, parts, count);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (fails(file, FULL)) FAIL(ENOSPC);
    return real(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (fails(file, FULL)) FAIL(ENOSPC);
    return real(file, data, size, at);
}

int fsync(int file) {
    REAL(int, "fsync", int);
    if (fails(file, NO_FLUSH)) FAIL(EIO);
    return real(file);
}

int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    if (fails(file, NO_FLUSH)) FAIL(EIO);
    return real(file);
}

int ftruncate(int file, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    fails(file, -1);
    return real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    fails(file, -1);
    return real(file, size);
}

int posix_fallocate(int file, off_t at, off_t size) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    return fails(file, FULL) ? ENOSPC : real(file, at, size);
}

int posix_fallocate64(int file, off64_t at, off64_t size) {
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    return fails(file, FULL) ? ENOSPC : real(file, at, size);
}

/* A full disk has no room, wherever it is asked. */
int statvfs(const char *path, struct statvfs *answer) {
    REAL(int, "statvfs", const char *, struct statvfs *);
    int failed = real(path, answer);
    if (!failed && control && control->mode == FULL) answer->f_bfree = answer->f_bavail = 0;
    return failed;
}

int statvfs64(const char *path, struct statvfs64 *answer) {
    REAL(int, "statvfs64", const char *, struct statvfs64 *);
    int failed = real(path, answer);
    if (!failed && control && control->mode == FULL) answer->f_bfree = answer->f_bavail = 0;
    return failed;
}
