/* Counts the calls that change what is on disk below a folder, and kills the process that makes one of them.
   All processes that have the variable PROBEKIT_KILLS_STATE, the name of a file, count together. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BEFORE, INSIDE, AFTER };
static struct state { char root[4096]; long calls, at, killed; int when; } *all; /* a file of zeros: counts nothing */

__attribute__((constructor)) static void begin_to_count(void) {
    const char *name = getenv("PROBEKIT_KILLS_STATE");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (at != MAP_FAILED) all = at;
}
long kills_size(void) { return sizeof *all; }
void kills_arm(const char *folder, long call, int how) { /* call: from 1; 0 only counts; an empty folder: nothing */
    strncpy(all->root, folder, sizeof all->root - 1);
    all->calls = 0, all->at = call, all->killed = 0, all->when = how;
}
long kills_calls(void) { return all->calls; }
long kills_killed(void) { return all->killed; }

static int below(const char *path) { return all && *all->root && !strncmp(path, all->root, strlen(all->root)); }
static int of_fd(int fd) {
    if (!all || !*all->root) return 0;
    char name[32], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    return n > 0 && (path[n] = 0, below(path));
}
static int of_path(int fd, const char *path) { return *path == '/' ? below(path) : fd != AT_FDCWD && of_fd(fd); }
static void die(void) { all->killed = 1, kill(getpid(), SIGKILL), pause(); }

/* Whether this call is the one to die at: it is made between the two, or by half. */
static int begin(int ours) {
    if (!ours) return 0;
    int here = __atomic_add_fetch(&all->calls, 1, __ATOMIC_SEQ_CST) == all->at;
    if (here && all->when == BEFORE) die();
    return here;
}
#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define CALL(result, name, ours, whole, half) \
    { REAL(name); int here = begin(ours); if (here && all->when == INSIDE) { half; die(); } result got = whole; if (here) die(); return got; }

ssize_t write(int fd, const void *b, size_t n) CALL(ssize_t, write, of_fd(fd), real(fd, b, n), real(fd, b, n / 2))
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) CALL(ssize_t, pwrite, of_fd(fd), real(fd, b, n, o), real(fd, b, n / 2, o))
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) CALL(ssize_t, pwrite64, of_fd(fd), real(fd, b, n, o), real(fd, b, n / 2, o))
ssize_t writev(int fd, const struct iovec *v, int n) CALL(ssize_t, writev, of_fd(fd), real(fd, v, n), real(fd, v, n / 2))
ssize_t sendfile(int fd, int from, off_t *o, size_t n) CALL(ssize_t, sendfile, of_fd(fd), real(fd, from, o, n), real(fd, from, o, n / 2))
ssize_t sendfile64(int fd, int from, off64_t *o, size_t n) CALL(ssize_t, sendfile64, of_fd(fd), real(fd, from, o, n), real(fd, from, o, n / 2))
ssize_t copy_file_range(int f, off64_t *o, int fd, off64_t *p, size_t n, unsigned h) CALL(ssize_t, copy_file_range, of_fd(fd), real(f, o, fd, p, n, h), real(f, o, fd, p, n / 2, h))
int fsync(int fd) CALL(int, fsync, of_fd(fd), real(fd), real(fd))
int fdatasync(int fd) CALL(int, fdatasync, of_fd(fd), real(fd), real(fd))
int ftruncate(int fd, off_t n) CALL(int, ftruncate, of_fd(fd), real(fd, n), real(fd, n))
int ftruncate64(int fd, off64_t n) CALL(int, ftruncate64, of_fd(fd), real(fd, n), real(fd, n))
int posix_fallocate(int fd, off_t o, off_t n) CALL(int, posix_fallocate, of_fd(fd), real(fd, o, n), real(fd, o, n / 2))
int posix_fallocate64(int fd, off64_t o, off64_t n) CALL(int, posix_fallocate64, of_fd(fd), real(fd, o, n), real(fd, o, n / 2))
int rename(const char *a, const char *b) CALL(int, rename, of_path(AT_FDCWD, b), real(a, b), real(a, b))
int renameat(int f, const char *a, int g, const char *b) CALL(int, renameat, of_path(g, b), real(f, a, g, b), real(f, a, g, b))
int renameat2(int f, const char *a, int g, const char *b, unsigned h) CALL(int, renameat2, of_path(g, b), real(f, a, g, b, h), real(f, a, g, b, h))
int link(const char *a, const char *b) CALL(int, link, of_path(AT_FDCWD, b), real(a, b), real(a, b))
int symlink(const char *a, const char *b) CALL(int, symlink, of_path(AT_FDCWD, b), real(a, b), real(a, b))
int unlink(const char *a) CALL(int, unlink, of_path(AT_FDCWD, a), real(a), real(a))
int unlinkat(int fd, const char *a, int h) CALL(int, unlinkat, of_path(fd, a), real(fd, a, h), real(fd, a, h))
int rmdir(const char *a) CALL(int, rmdir, of_path(AT_FDCWD, a), real(a), real(a))
int mkdir(const char *a, mode_t m) CALL(int, mkdir, of_path(AT_FDCWD, a), real(a, m), real(a, m))
int mkdirat(int fd, const char *a, mode_t m) CALL(int, mkdirat, of_path(fd, a), real(fd, a, m), real(fd, a, m))

#define MODE va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); int makes = flags & (O_CREAT | O_TRUNC);
int open(const char *a, int flags, ...) { MODE CALL(int, open, makes && of_path(AT_FDCWD, a), real(a, flags, mode), real(a, flags, mode)) }
int open64(const char *a, int flags, ...) { MODE CALL(int, open64, makes && of_path(AT_FDCWD, a), real(a, flags, mode), real(a, flags, mode)) }
int openat(int fd, const char *a, int flags, ...) { MODE CALL(int, openat, makes && of_path(fd, a), real(fd, a, flags, mode), real(fd, a, flags, mode)) }
int openat64(int fd, const char *a, int flags, ...) { MODE CALL(int, openat64, makes && of_path(fd, a), real(fd, a, flags, mode), real(fd, a, flags, mode)) }
