/* Faults below every language: preloaded into a process, this stands between it and libc, and fails the calls that it is
 * told to fail, whether they come from Python, from Arrow or from the Rust libraries.
 *
 * Only calls on paths below one folder count. The process arms and disarms it through the faults_* functions. Calls have
 * kinds; the nth call of the kinds in the mask fails, once or from then on, in one of four ways:
 *
 *   REFUSED   nothing is done, and the errno is given
 *   DONE      it is done, and the errno is given all the same: an answer that was lost
 *   SHORT     a write or read does half of what it was asked for, and says so
 *   PARTIAL   a write does half, and the errno is given
 *
 * While a trace file is set, each counted call is written to it as a line: kind, tab, path. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, CREATE, READ, WRITE, SYNC, LINK, RENAME, UNLINK, MKDIR, TRUNCATE, MMAP, LIST, STAT, KINDS };
enum way { REFUSED, DONE, SHORT, PARTIAL };
enum verdict { PASS, FAIL, DO_AND_FAIL, HALF, HALF_AND_FAIL };

static const char *const names[KINDS] = {"open",  "create",   "read",  "write", "sync", "link", "rename", "unlink",
                                         "mkdir", "truncate", "mmap", "list", "stat"};
static char root[4096];
static size_t root_length;
static volatile int armed, mask, number, way, sticky;
static volatile long nth, counted, fired;
static char first_fired[4200];
static int trace = -1;

/* -- told by the process */

void faults_root(const char *path) {
  snprintf(root, sizeof root, "%s", path);
  root_length = strlen(root);
}

void faults_trace(int fd) { trace = fd; }

void faults_arm(int kinds, long which, int error, int how, int from_then_on) {
  armed = 0;
  mask = kinds, nth = which, number = error, way = how, sticky = from_then_on;
  counted = fired = 0;
  first_fired[0] = 0;
  __sync_synchronize();
  armed = 1;
}

void faults_disarm(void) { armed = 0; }
long faults_counted(void) { return counted; }
long faults_fired(void) { return fired; }
const char *faults_first(void) { return first_fired; }

/* -- which calls count */

static int below(const char *path) {
  return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int path_of_fd(int fd, char *out, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, out, size - 1);
  if (length < 0) return 0;
  out[length] = 0;
  return 1;
}

static int absolute(int folder, const char *path, char *out, size_t size) {
  if (!path) return 0;
  if (path[0] == '/') {
    snprintf(out, size, "%s", path);
    return 1;
  }
  char start[2048];
  if (folder == AT_FDCWD) {
    if (syscall(SYS_getcwd, start, sizeof start) < 0) return 0;
  } else if (!path_of_fd(folder, start, sizeof start)) {
    return 0;
  }
  if (path[0]) snprintf(out, size, "%s/%s", start, path);
  else snprintf(out, size, "%s", start);
  return 1;
}

static enum verdict judge(enum kind kind, const char *path) {
  if (!(mask & (1 << kind)) || !below(path)) return PASS;
  long place = __sync_add_and_fetch(&counted, 1);
  if (trace >= 0) {
    char line[4300];
    int length = snprintf(line, sizeof line, "%s\t%s\n", names[kind], path + root_length);
    syscall(SYS_write, trace, line, (size_t)length);
  }
  if (!nth || place < nth || (place > nth && !sticky)) return PASS;
  if (__sync_add_and_fetch(&fired, 1) == 1) snprintf(first_fired, sizeof first_fired, "%s %s", names[kind], path + root_length);
  switch (way) {
    case DONE: return DO_AND_FAIL;
    case SHORT: return HALF;
    case PARTIAL: return HALF_AND_FAIL;
    default: return FAIL;
  }
}

static enum verdict judge_at(enum kind kind, int folder, const char *path) {
  char full[4200];
  if (!armed || !absolute(folder, path, full, sizeof full)) return PASS;
  return judge(kind, full);
}

static enum verdict judge_fd(enum kind kind, int fd) {
  char full[4200];
  if (!armed || !(mask & (1 << kind)) || !path_of_fd(fd, full, sizeof full)) return PASS;
  return judge(kind, full);
}

/* The target of a link or a rename counts, or else its source. */
static enum verdict judge_two(enum kind kind, int from, const char *source, int to, const char *target) {
  char full[4200];
  if (!armed) return PASS;
  if (absolute(to, target, full, sizeof full) && below(full)) return judge(kind, full);
  return judge_at(kind, from, source);
}

#define REAL(name) ((__typeof__(&name))real(#name, &real_##name))
#define SLOT(name) static void *real_##name
static void *real(const char *name, void **slot) {
  if (!*slot) *slot = dlsym(RTLD_NEXT, name);
  return *slot;
}

#define REFUSE(result)  \
  do {                  \
    errno = number;     \
    return (result);    \
  } while (0)
/* For calls that are done, or not, as a whole. */
#define WHOLE(ruling, type, failed, call)                  \
  do {                                                      \
    enum verdict found = (ruling);                          \
    if (found == PASS || found == HALF) return (call);      \
    if (found == DO_AND_FAIL) {                             \
      type answer = (call);                                 \
      if (answer == (failed)) return answer;                \
    }                                                       \
    REFUSE(failed);                                         \
  } while (0)

/* -- opening: a descriptor whose number nobody learns would be lost, so it is closed */

#define OPENED(ruling, call)                               \
  do {                                                      \
    enum verdict found = (ruling);                          \
    if (found == PASS || found == HALF) return (call);      \
    if (found == DO_AND_FAIL) {                             \
      int fd = (call);                                      \
      if (fd < 0) return fd;                                \
      syscall(SYS_close, fd);                               \
    }                                                       \
    REFUSE(-1);                                             \
  } while (0)
#define KIND_OF(flags) ((flags) & O_CREAT ? CREATE : OPEN)
#define MODE                                                    \
  mode_t mode = 0;                                              \
  if (flags & (O_CREAT | O_TMPFILE)) {                          \
    va_list more;                                               \
    va_start(more, flags);                                      \
    mode = va_arg(more, mode_t);                                \
    va_end(more);                                               \
  }

SLOT(open);
int open(const char *path, int flags, ...) {
  MODE OPENED(judge_at(KIND_OF(flags), AT_FDCWD, path), REAL(open)(path, flags, mode));
}
SLOT(open64);
int open64(const char *path, int flags, ...) {
  MODE OPENED(judge_at(KIND_OF(flags), AT_FDCWD, path), REAL(open64)(path, flags, mode));
}
SLOT(openat);
int openat(int folder, const char *path, int flags, ...) {
  MODE OPENED(judge_at(KIND_OF(flags), folder, path), REAL(openat)(folder, path, flags, mode));
}
SLOT(openat64);
int openat64(int folder, const char *path, int flags, ...) {
  MODE OPENED(judge_at(KIND_OF(flags), folder, path), REAL(openat64)(folder, path, flags, mode));
}
SLOT(opendir);
DIR *opendir(const char *path) { WHOLE(judge_at(LIST, AT_FDCWD, path), DIR *, NULL, REAL(opendir)(path)); }
SLOT(fdopendir);
DIR *fdopendir(int fd) { WHOLE(judge_fd(LIST, fd), DIR *, NULL, REAL(fdopendir)(fd)); }
/* Of the entries of a folder only the first counts. */
SLOT(readdir64);
struct dirent64 *readdir64(DIR *folder) {
  if (armed && !telldir(folder) && judge_fd(LIST, dirfd(folder)) != PASS) REFUSE(NULL);
  return REAL(readdir64)(folder);
}

/* -- bytes */

#define BYTES(ruling, size, call)                                        \
  do {                                                                    \
    enum verdict found = (ruling);                                        \
    size_t amount = (size);                                               \
    if (found == HALF && amount > 1) amount /= 2;                         \
    if (found == PASS || found == HALF) return (call);                    \
    if (found == DO_AND_FAIL) (void)!(call);                              \
    if (found == HALF_AND_FAIL && amount > 1) {                           \
      amount /= 2;                                                        \
      (void)!(call);                                                      \
    }                                                                     \
    REFUSE(-1);                                                           \
  } while (0)

SLOT(write);
ssize_t write(int fd, const void *data, size_t size) { BYTES(judge_fd(WRITE, fd), size, REAL(write)(fd, data, amount)); }
SLOT(pwrite);
ssize_t pwrite(int fd, const void *data, size_t size, off_t place) {
  BYTES(judge_fd(WRITE, fd), size, REAL(pwrite)(fd, data, amount, place));
}
SLOT(pwrite64);
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t place) {
  BYTES(judge_fd(WRITE, fd), size, REAL(pwrite64)(fd, data, amount, place));
}
SLOT(writev);
ssize_t writev(int fd, const struct iovec *parts, int count) {
  enum verdict found = judge_fd(WRITE, fd);
  if (found == PASS) return REAL(writev)(fd, parts, count);
  if (found == HALF || found == HALF_AND_FAIL) {
    size_t size = parts[0].iov_len > 1 ? parts[0].iov_len / 2 : parts[0].iov_len;
    ssize_t done = REAL(write)(fd, parts[0].iov_base, size);
    if (found == HALF) return done;
  }
  if (found == DO_AND_FAIL) (void)!REAL(writev)(fd, parts, count);
  REFUSE(-1);
}
SLOT(sendfile);
ssize_t sendfile(int out, int in, off_t *place, size_t size) {
  BYTES(judge_fd(WRITE, out), size, REAL(sendfile)(out, in, place, amount));
}
SLOT(sendfile64);
ssize_t sendfile64(int out, int in, off64_t *place, size_t size) {
  BYTES(judge_fd(WRITE, out), size, REAL(sendfile64)(out, in, place, amount));
}
SLOT(copy_file_range);
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
  BYTES(judge_fd(WRITE, out), size, REAL(copy_file_range)(in, from, out, to, amount, flags));
}
SLOT(read);
ssize_t read(int fd, void *data, size_t size) { BYTES(judge_fd(READ, fd), size, REAL(read)(fd, data, amount)); }
SLOT(pread);
ssize_t pread(int fd, void *data, size_t size, off_t place) {
  BYTES(judge_fd(READ, fd), size, REAL(pread)(fd, data, amount, place));
}
SLOT(pread64);
ssize_t pread64(int fd, void *data, size_t size, off64_t place) {
  BYTES(judge_fd(READ, fd), size, REAL(pread64)(fd, data, amount, place));
}
SLOT(mmap);
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t place) {
  WHOLE(fd < 0 ? PASS : judge_fd(MMAP, fd), void *, MAP_FAILED, REAL(mmap)(at, size, protection, flags, fd, place));
}
SLOT(mmap64);
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t place) {
  WHOLE(fd < 0 ? PASS : judge_fd(MMAP, fd), void *, MAP_FAILED, REAL(mmap64)(at, size, protection, flags, fd, place));
}

/* -- files as a whole */

SLOT(fsync);
int fsync(int fd) { WHOLE(judge_fd(SYNC, fd), int, -1, REAL(fsync)(fd)); }
SLOT(fdatasync);
int fdatasync(int fd) { WHOLE(judge_fd(SYNC, fd), int, -1, REAL(fdatasync)(fd)); }
SLOT(truncate);
int truncate(const char *path, off_t size) { WHOLE(judge_at(TRUNCATE, AT_FDCWD, path), int, -1, REAL(truncate)(path, size)); }
SLOT(ftruncate);
int ftruncate(int fd, off_t size) { WHOLE(judge_fd(TRUNCATE, fd), int, -1, REAL(ftruncate)(fd, size)); }
SLOT(ftruncate64);
int ftruncate64(int fd, off64_t size) { WHOLE(judge_fd(TRUNCATE, fd), int, -1, REAL(ftruncate64)(fd, size)); }
SLOT(link);
int link(const char *from, const char *to) {
  WHOLE(judge_two(LINK, AT_FDCWD, from, AT_FDCWD, to), int, -1, REAL(link)(from, to));
}
SLOT(linkat);
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
  WHOLE(judge_two(LINK, from_folder, from, to_folder, to), int, -1, REAL(linkat)(from_folder, from, to_folder, to, flags));
}
SLOT(symlink);
int symlink(const char *content, const char *path) {
  WHOLE(judge_at(LINK, AT_FDCWD, path), int, -1, REAL(symlink)(content, path));
}
SLOT(rename);
int rename(const char *from, const char *to) {
  WHOLE(judge_two(RENAME, AT_FDCWD, from, AT_FDCWD, to), int, -1, REAL(rename)(from, to));
}
SLOT(renameat);
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  WHOLE(judge_two(RENAME, from_folder, from, to_folder, to), int, -1, REAL(renameat)(from_folder, from, to_folder, to));
}
SLOT(renameat2);
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  WHOLE(judge_two(RENAME, from_folder, from, to_folder, to), int, -1,
        REAL(renameat2)(from_folder, from, to_folder, to, flags));
}
SLOT(unlink);
int unlink(const char *path) { WHOLE(judge_at(UNLINK, AT_FDCWD, path), int, -1, REAL(unlink)(path)); }
SLOT(unlinkat);
int unlinkat(int folder, const char *path, int flags) {
  WHOLE(judge_at(UNLINK, folder, path), int, -1, REAL(unlinkat)(folder, path, flags));
}
SLOT(rmdir);
int rmdir(const char *path) { WHOLE(judge_at(UNLINK, AT_FDCWD, path), int, -1, REAL(rmdir)(path)); }
SLOT(mkdir);
int mkdir(const char *path, mode_t mode) { WHOLE(judge_at(MKDIR, AT_FDCWD, path), int, -1, REAL(mkdir)(path, mode)); }
SLOT(mkdirat);
int mkdirat(int folder, const char *path, mode_t mode) {
  WHOLE(judge_at(MKDIR, folder, path), int, -1, REAL(mkdirat)(folder, path, mode));
}

/* -- looking */

SLOT(stat);
int stat(const char *path, struct stat *found_there) {
  WHOLE(judge_at(STAT, AT_FDCWD, path), int, -1, REAL(stat)(path, found_there));
}
SLOT(stat64);
int stat64(const char *path, struct stat64 *found_there) {
  WHOLE(judge_at(STAT, AT_FDCWD, path), int, -1, REAL(stat64)(path, found_there));
}
SLOT(lstat);
int lstat(const char *path, struct stat *found_there) {
  WHOLE(judge_at(STAT, AT_FDCWD, path), int, -1, REAL(lstat)(path, found_there));
}
SLOT(lstat64);
int lstat64(const char *path, struct stat64 *found_there) {
  WHOLE(judge_at(STAT, AT_FDCWD, path), int, -1, REAL(lstat64)(path, found_there));
}
SLOT(fstatat);
int fstatat(int folder, const char *path, struct stat *found_there, int flags) {
  WHOLE(judge_at(STAT, folder, path), int, -1, REAL(fstatat)(folder, path, found_there, flags));
}
SLOT(fstatat64);
int fstatat64(int folder, const char *path, struct stat64 *found_there, int flags) {
  WHOLE(judge_at(STAT, folder, path), int, -1, REAL(fstatat64)(folder, path, found_there, flags));
}
SLOT(statx);
int statx(int folder, const char *restrict path, int flags, unsigned wanted, struct statx *restrict found_there) {
  WHOLE(judge_at(STAT, folder, path), int, -1, REAL(statx)(folder, path, flags, wanted, found_there));
}
