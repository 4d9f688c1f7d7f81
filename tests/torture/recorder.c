// Preloaded: writes down every change that this process makes to files below a root, in the order in which they happen,
// and every fsync. record_to() begins, mark() notes a moment, record_end() ends. power_cut.py reads it.
//
// One record: kind (1 byte), inode (8), offset (8), lengths of two paths (4, 4) and of the data (8), then these.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[4096];
static int out = -1;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside;

#define REAL(result, name, ...) static result (*real_##name)(__VA_ARGS__)
REAL(int, openat, int, const char *, int, ...);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, sendfile, int, int, off_t *, size_t);
REAL(ssize_t, copy_file_range, int, off_t *, int, off_t *, size_t, unsigned);
REAL(int, ftruncate, int, off_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, linkat, int, const char *, int, const char *, int);
REAL(int, renameat2, int, const char *, int, const char *, unsigned);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdirat, int, const char *, mode_t);

__attribute__((constructor)) static void look_up(void) {
#define FIND(name) real_##name = dlsym(RTLD_NEXT, #name)
    FIND(openat); FIND(write); FIND(pwrite); FIND(writev); FIND(sendfile); FIND(copy_file_range); FIND(ftruncate);
    FIND(fsync); FIND(fdatasync); FIND(linkat); FIND(renameat2); FIND(unlinkat); FIND(mkdirat);
}

static void put(const void *data, size_t length) {
    while (length) {
        ssize_t written = real_write(out, data, length);
        if (written <= 0) abort();
        data = (const char *)data + written;
        length -= written;
    }
}

static void note(char kind, uint64_t inode, const char *a, const char *b, int64_t offset, const void *data, uint64_t length) {
    uint32_t lengths[2] = {a ? strlen(a) : 0, b ? strlen(b) : 0};
    put(&kind, 1);
    put(&inode, 8);
    put(&offset, 8);
    put(lengths, 8);
    put(&length, 8);
    if (a) put(a, lengths[0]);
    if (b) put(b, lengths[1]);
    if (length) put(data, length);
}

void record_to(const char *path, const char *below) {
    snprintf(root, sizeof root, "%s", below);
    out = real_openat(AT_FDCWD, path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (out < 0) abort();
}

void record_end(void) {
    pthread_mutex_lock(&order);
    close(out);
    out = -1;
    pthread_mutex_unlock(&order);
}

void mark(const char *text) {
    pthread_mutex_lock(&order);
    note('M', 0, text, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&order);
}

static int below(const char *path) {
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int full(int folder, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, 4096, "%s", name);
        return below(path);
    }
    char start[4096];
    if (folder == AT_FDCWD ? !getcwd(start, sizeof start) : !path_of(folder, start)) return 0;
    snprintf(path, 4096, "%.2000s/%.2000s", start, name);
    return below(path);
}

static uint64_t inode_at(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

static uint64_t inode_of(int fd, int *folder) {
    struct stat found;
    if (fstat(fd, &found)) return 0;
    if (folder) *folder = S_ISDIR(found.st_mode);
    return found.st_ino;
}

#define WATCHED (out >= 0 && !inside)
#define BEGIN() (inside++, pthread_mutex_lock(&order))
#define END() do { int kept = errno; pthread_mutex_unlock(&order); inside--; errno = kept; } while (0)

static int opened(int folder, const char *name, int flags, mode_t mode) {
    char path[4096];
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    if (!WATCHED || !writes || !full(folder, name, path)) return real_openat(folder, name, flags, mode);
    BEGIN();
    uint64_t before = inode_at(path);
    int fd = real_openat(folder, name, flags, mode);
    if (fd >= 0 && !before) note('C', inode_of(fd, NULL), path, NULL, 0, NULL, 0);
    else if (fd >= 0 && (flags & O_TRUNC)) note('T', inode_of(fd, NULL), path, NULL, 0, NULL, 0);
    END();
    return fd;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags | O_LARGEFILE, mode); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static ssize_t written(int fd, const void *data, size_t length, off_t offset, int placed) {
    char path[4096];
    if (!WATCHED || !path_of(fd, path)) return placed ? real_pwrite(fd, data, length, offset) : real_write(fd, data, length);
    BEGIN();
    ssize_t result = placed ? real_pwrite(fd, data, length, offset) : real_write(fd, data, length);
    if (result > 0) note('W', inode_of(fd, NULL), path, NULL, placed ? offset : lseek(fd, 0, SEEK_CUR) - result, data, result);
    END();
    return result;
}
ssize_t write(int fd, const void *data, size_t length) { return written(fd, data, length, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return written(fd, data, length, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) { return written(fd, data, length, offset, 1); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[4096];
    if (!WATCHED || !path_of(fd, path)) return real_writev(fd, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t result = written(fd, parts[i].iov_base, parts[i].iov_len, 0, 0);
        if (result < 0) return total ? total : -1;
        total += result;
        if ((size_t)result < parts[i].iov_len) break;
    }
    return total;
}

// What the kernel copies by itself is read back whole.
static void copied(int fd, const char *path) {
    struct stat found;
    int again = real_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (again < 0 || fstat(again, &found)) abort();
    char *data = malloc(found.st_size + 1);
    ssize_t length = pread(again, data, found.st_size, 0);
    if (length < 0) abort();
    note('W', inode_of(fd, NULL), path, NULL, 0, data, length);
    free(data);
    close(again);
}
static ssize_t sent(int target, int source, off_t *offset, size_t length) {
    char path[4096];
    if (!WATCHED || !path_of(target, path)) return real_sendfile(target, source, offset, length);
    BEGIN();
    ssize_t result = real_sendfile(target, source, offset, length);
    if (result > 0) copied(target, path);
    END();
    return result;
}
ssize_t sendfile(int target, int source, off_t *offset, size_t length) { return sent(target, source, offset, length); }
ssize_t sendfile64(int target, int source, off_t *offset, size_t length) { return sent(target, source, offset, length); }
ssize_t copy_file_range(int source, off_t *from, int target, off_t *to, size_t length, unsigned flags) {
    char path[4096];
    if (!WATCHED || !path_of(target, path)) return real_copy_file_range(source, from, target, to, length, flags);
    BEGIN();
    ssize_t result = real_copy_file_range(source, from, target, to, length, flags);
    if (result > 0) copied(target, path);
    END();
    return result;
}

static int truncated(int fd, off_t length) {
    char path[4096];
    if (!WATCHED || !path_of(fd, path)) return real_ftruncate(fd, length);
    BEGIN();
    int result = real_ftruncate(fd, length);
    if (!result) note('T', inode_of(fd, NULL), path, NULL, length, NULL, 0);
    END();
    return result;
}
int ftruncate(int fd, off_t length) { return truncated(fd, length); }
int ftruncate64(int fd, off_t length) { return truncated(fd, length); }

static int synced(int fd, int (*real)(int)) {
    char path[4096];
    int folder = 0;
    if (!WATCHED || !path_of(fd, path)) return real(fd);
    BEGIN();
    uint64_t inode = inode_of(fd, &folder);
    int result = real(fd);
    if (!result) note(folder ? 'D' : 'S', inode, path, NULL, 0, NULL, 0);
    END();
    return result;
}
int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

#define MOVED(kind, first, a, second, b, call) \
    char from[4096], to[4096]; \
    int known = WATCHED && full(first, a, from) + full(second, b, to) == 2; \
    if (!known) return call; \
    BEGIN(); \
    uint64_t inode = inode_at(from); \
    int result = call; \
    if (!result) note(kind, inode, from, to, 0, NULL, 0); \
    END(); \
    return result;
int linkat(int f, const char *a, int g, const char *b, int flags) { MOVED('L', f, a, g, b, real_linkat(f, a, g, b, flags)) }
int link(const char *a, const char *b) { return linkat(AT_FDCWD, a, AT_FDCWD, b, 0); }
int renameat2(int f, const char *a, int g, const char *b, unsigned flags) { MOVED('R', f, a, g, b, real_renameat2(f, a, g, b, flags)) }
int renameat(int f, const char *a, int g, const char *b) { return renameat2(f, a, g, b, 0); }
int rename(const char *a, const char *b) { return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0); }

int unlinkat(int folder, const char *name, int flags) {
    char path[4096];
    if (!WATCHED || !full(folder, name, path)) return real_unlinkat(folder, name, flags);
    BEGIN();
    uint64_t inode = inode_at(path);
    int result = real_unlinkat(folder, name, flags);
    if (!result) note('U', inode, path, NULL, 0, NULL, 0);
    END();
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[4096];
    if (!WATCHED || !full(folder, name, path)) return real_mkdirat(folder, name, mode);
    BEGIN();
    int result = real_mkdirat(folder, name, mode);
    if (!result) note('F', inode_at(path), path, NULL, 0, NULL, 0);
    END();
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
