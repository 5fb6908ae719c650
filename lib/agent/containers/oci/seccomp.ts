/**
 * Pure. Which system calls a container may make, as an allow list: what is not named fails with
 * EPERM. The names follow the manual pages (syscalls(2)); the OCI runtime ignores those that an
 * architecture does not have. Only the machine's own architecture is allowed, so a 32-bit program
 * cannot take another way into the kernel.
 *
 * Left out on purpose: namespaces and mounts (unshare, setns, mount, fsopen, pivot_root …), what
 * sees other processes (ptrace, process_vm_readv, kcmp, pidfd_getfd), the kernel itself (bpf,
 * kexec_load, init_module, perf_event_open, syslog), keys (keyctl), files by handle, the clock,
 * swap, quotas, and interfaces with a history of kernel faults (userfaultfd, io_uring).
 */

export type Architecture = 'x64' | 'arm64';

const EPERM = 1;
const ENOSYS = 38;

/**
 * CLONE_NEW…: mnt, cgroup, uts, ipc, user, pid, net. The time namespace cannot be made by clone(2).
 */
const NAMESPACE_FLAGS = 0x7e020000;
/** AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. */
const SOCKET_FAMILIES = [1, 2, 10, 16];
/** PER_LINUX, PER_LINUX32, and the question for the present one. */
const PERSONALITIES = [0x0, 0x8, 0xffffffff];
/**
 * The first argument of prctl(2). Without PR_SET_MM (35), by which a process places what /proc
 * shows as its arguments over any of its memory, and without those that concern the machine, such
 * as PR_MCE_KILL and PR_SET_IO_FLUSHER. The kernel ignores the upper half of the argument, so only
 * an allow list is safe.
 */
const PRCTL_OPTIONS = [
  // PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_GET_KEEPCAPS,
  // PR_SET_KEEPCAPS
  ...[1, 2, 3, 4, 7, 8],
  // PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP
  ...[15, 16, 21, 22, 23, 24],
  // PR_GET_TSC, PR_SET_TSC, PR_GET_SECUREBITS, PR_SET_SECUREBITS, PR_SET_TIMERSLACK,
  // PR_GET_TIMERSLACK
  ...[25, 26, 27, 28, 29, 30],
  // PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS
  ...[36, 37, 38, 39],
  // PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_CAP_AMBIENT
  ...[40, 41, 42, 47],
  // PR_SVE_SET_VL, PR_SVE_GET_VL, PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL
  ...[50, 51, 52, 53],
  // PR_PAC_RESET_KEYS, PR_SET_TAGGED_ADDR_CTRL, PR_GET_TAGGED_ADDR_CTRL, PR_PAC_SET_ENABLED_KEYS,
  // PR_PAC_GET_ENABLED_KEYS
  ...[54, 55, 56, 60, 61],
  // PR_SME_SET_VL, PR_SME_GET_VL, PR_SET_MDWE, PR_GET_MDWE, PR_SET_MEMORY_MERGE,
  // PR_GET_MEMORY_MERGE
  ...[63, 64, 65, 66, 67, 68],
  // PR_GET_SHADOW_STACK_STATUS, PR_SET_SHADOW_STACK_STATUS, PR_LOCK_SHADOW_STACK_STATUS
  ...[74, 75, 76],
  // PR_SET_VMA, PR_SET_PTRACER, PR_GET_AUXV
  ...[0x53564d41, 0x59616d61, 0x41555856],
];

const ARCHITECTURES: Readonly<Record<Architecture, string>> = {
  x64: 'SCMP_ARCH_X86_64',
  arm64: 'SCMP_ARCH_AARCH64',
};

const FILES = `access chdir chmod chown chroot close close_range copy_file_range creat dup dup2 dup3 faccessat
  faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr
  flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64
  getxattr ioctl lchown lgetxattr link linkat listxattr llistxattr lremovexattr lseek lsetxattr lstat mkdir
  mkdirat mknod mknodat newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev
  pwritev2 read readahead readlink readlinkat readv removexattr rename renameat renameat2 rmdir sendfile
  setxattr splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink
  unlinkat utime utimensat utimes vmsplice write writev`;

const WAITING = `epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait
  epoll_wait_old eventfd eventfd2 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel
  io_destroy io_getevents io_pgetevents io_setup io_submit poll ppoll pselect6 select signalfd signalfd4
  timerfd_create timerfd_gettime timerfd_settime`;

const MEMORY = `brk madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall
  mmap mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect
  remap_file_pages`;

const PROCESSES = `arch_prctl capget capset execve execveat exit exit_group fork futex futex_requeue futex_wait
  futex_waitv futex_wake get_robust_list get_thread_area getcpu getegid geteuid getgid getgroups getpgid
  getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get
  ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self pidfd_open
  pidfd_send_signal prlimit64 restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask
  rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
  sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
  sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp
  set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority
  setregid setresgid setresuid setreuid setrlimit setsid setuid sigaltstack tgkill time times tkill uname
  vfork wait4 waitid`;

const SOCKETS = `accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg
  sendmmsg sendmsg sendto setsockopt shutdown socketpair`;

const SYSTEM_V = `mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv
  msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget`;

const TIME = `alarm clock_getres clock_gettime clock_nanosleep getitimer getrandom gettimeofday nanosleep pause
  setitimer sysinfo timer_create timer_delete timer_getoverrun timer_gettime timer_settime`;

const ALLOWED = [FILES, WAITING, MEMORY, PROCESSES, SOCKETS, SYSTEM_V, TIME].flatMap((names) => names.split(/\s+/));

const allowIf = (name: string, arg: object) => ({ names: [name], action: 'SCMP_ACT_ALLOW', args: [arg] });
const equal = (value: number) => ({ index: 0, value, op: 'SCMP_CMP_EQ' });

/** `linux.seccomp` of the OCI runtime configuration. */
export function buildSeccomp(architecture: Architecture) {
  return {
    defaultAction: 'SCMP_ACT_ERRNO',
    defaultErrnoRet: EPERM,
    architectures: [ARCHITECTURES[architecture]],
    syscalls: [
      { names: ALLOWED, action: 'SCMP_ACT_ALLOW' },
      allowIf('clone', { index: 0, value: NAMESPACE_FLAGS, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }),
      // A filter cannot read its flags, which lie in memory; the C library then takes clone.
      { names: ['clone3'], action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
      ...SOCKET_FAMILIES.map((family) => allowIf('socket', equal(family))),
      ...PRCTL_OPTIONS.map((option) => allowIf('prctl', equal(option))),
      ...PERSONALITIES.map((personality) => allowIf('personality', equal(personality))),
    ],
  };
}
