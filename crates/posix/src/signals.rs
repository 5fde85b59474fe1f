//! Signals of the program's. Its handlers are called by this library, for two reasons.
//!
//! SIGSEGV and SIGBUS are also what says that memory is not there which a program has named (`guarded`).
//!
//! A handler may do all that the kernel lets it do in the middle of a read(2): read by itself, and leave for good
//! (siglongjmp(3)). Here the thread may hold a lock then. So a signal that comes while it is [`Busy`] waits until it is
//! not: that costs nothing where none comes. If it is one that asks the program to end, the session hears of it
//! ([`ending`]), and a call does not wait for ever for a server that does nothing.
//!
//! For the same reason, a thread is not cancelled (pthread_cancel(3)) while it is busy: what this library calls of libc
//! is not where its calls say that they may end so ([`cancellation_point`]).

use crate::guarded;
use crate::next::own;
use crate::setup::has_disks;
use blockyard_block::EventFd;
use libc::{c_int, c_void, sigaction, sighandler_t, siginfo_t};
use std::cell::Cell;
use std::mem::{transmute, zeroed};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicUsize, Ordering, compiler_fence};

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// What the program does about a signal (`sa_sigaction`, `sa_flags`).
struct Known {
    handler: AtomicUsize,
    flags: AtomicI32,
}

/// By number. Those that libc has for itself are not set by programs.
static KNOWN: [Known; 65] =
    [const { Known { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) } }; 65];

/// What of the program's flags the kernel's action does not say.
const OWN_FLAGS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_ONSTACK;

/// Signals by which somebody asks a program to end.
const ASKING: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// Those of them that wait, of all threads, and what is readable while there are any, once somebody wants to know.
static ASKED: AtomicUsize = AtomicUsize::new(0);
static ENDING: AtomicPtr<EventFd> = AtomicPtr::new(null_mut());

/// Signals that come while one waits, at most: all are blocked from then on.
const WAITING_MAX: usize = 4;

/// Signals that say that memory is not there, as a set of the kernel's.
const FAULTS: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);

/// All of them that are programs' to block: by two, libc's threads speak with each other.
pub(crate) const ALL: u64 = !(0b11 << 31);

/// Whether a thread may have blocked them. Of a program that never did, no thread is asked: that would cost a name that
/// is no disk's more than all else here.
static BLOCKED: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Before the program begins; or it has not begun with this library, and may have done so before.
const UNKNOWN: u8 = 0;
const NEVER: u8 = 1;
const MAYBE: u8 = 2;

/// A signal that waits.
#[derive(Clone, Copy)]
struct Waiting {
    signal: c_int,
    information: siginfo_t,
}

/// What a thread is in the middle of.
struct State {
    depth: Cell<u32>,
    count: Cell<usize>,
    waiting: [Cell<Option<Waiting>>; WAITING_MAX],
    /// The signals that the program has blocked.
    mask: Cell<u64>,
    /// Whether it may be cancelled, as the program has it.
    cancellation: Cell<c_int>,
    /// Whether it has blocked what says that memory is not there; `None`: that is not known now.
    blocks_faults: Cell<Option<bool>>,
}

thread_local! {
    static STATE: State = const {
        State {
            depth: Cell::new(0),
            count: Cell::new(0),
            waiting: [const { Cell::new(None) }; WAITING_MAX],
            mask: Cell::new(0),
            cancellation: Cell::new(0),
            blocks_faults: Cell::new(None),
        }
    };
}

/// While a thread has it, handlers of the program's wait.
pub(crate) struct Busy(());

impl Busy {
    #[inline]
    pub(crate) fn enter() -> Self {
        STATE.with(|state| {
            state.depth.set(state.depth.get() + 1);
            compiler_fence(Ordering::SeqCst);
            if state.depth.get() == 1 {
                // SAFETY: there is room for what was.
                unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, state.cancellation.as_ptr()) };
            }
        });
        Self(())
    }
}

impl Busy {
    /// The same as [`cancellation_point`], for one who has nothing else.
    pub(crate) fn cancellation_point(&self) {
        STATE.with(|state| {
            // SAFETY: as the program has it, and as it was.
            unsafe {
                pthread_setcancelstate(state.cancellation.get(), null_mut());
                pthread_testcancel();
                pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, null_mut());
            }
        });
    }
}

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        STATE.with(|state| {
            if state.depth.get() == 1 {
                // SAFETY: as it was.
                unsafe { pthread_setcancelstate(state.cancellation.get(), null_mut()) };
            }
            state.depth.set(state.depth.get() - 1);
            compiler_fence(Ordering::SeqCst);
            if state.count.get() > 0 && state.depth.get() == 0 {
                state.let_come();
            }
        });
    }
}

/// Where a thread may end that somebody has cancelled: it must not have anything yet.
#[inline]
pub(crate) fn cancellation_point() {
    // SAFETY: the caller's frames have nothing to be dropped.
    unsafe { pthread_testcancel() };
}

/// This thread, which is the library's own, hears that memory is not there.
pub(crate) fn let_faults_come() {
    let faults = FAULTS;
    // SAFETY: a set of signals as the kernel has it.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const faults, null_mut::<u64>(), 8) };
    mask_changes(0);
}

/// The signals that this thread has blocked may be others from now on, and these among them, as a set of the kernel's.
pub(crate) fn mask_changes(these: u64) {
    if these & FAULTS != 0 {
        BLOCKED.store(MAYBE, Ordering::Relaxed);
    }
    STATE.with(|state| state.blocks_faults.set(None));
}

/// Has this thread block these signals, as a set of the kernel's, and no others: those that it blocked before. It names
/// no memory meanwhile that may not be there.
pub(crate) fn set_mask(these: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: both are sets of signals as the kernel has them.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const these, &raw mut before, 8) };
    STATE.with(|state| state.blocks_faults.set(None));
    before
}

/// A program begins, by this thread; a library of its own may have begun before.
pub(crate) fn learn_first_mask() {
    STATE.with(State::learn_mask);
    let _ = BLOCKED.compare_exchange(UNKNOWN, NEVER, Ordering::Relaxed, Ordering::Relaxed);
}

/// Whether this thread has blocked what says that memory is not there: then the kernel ends the process where it is
/// not. It is asked only where that may have changed.
#[inline]
pub(crate) fn are_faults_blocked() -> bool {
    may_faults_be_blocked() && STATE.with(|state| state.blocks_faults.get().unwrap_or_else(|| state.learn_mask()))
}

/// Whether any thread may have blocked them.
#[inline]
pub(crate) fn may_faults_be_blocked() -> bool {
    BLOCKED.load(Ordering::Relaxed) != NEVER
}

/// Whether this thread is in the middle of something.
pub(crate) fn is_busy() -> bool {
    STATE.with(|state| state.depth.get() > 0)
}

/// Whether a signal waits for this thread.
pub(crate) fn is_one_waiting() -> bool {
    STATE.with(|state| state.count.get() > 0)
}

/// Whether those that wait are such as what they interrupt goes on after (`SA_RESTART`).
pub(crate) fn all_restart() -> bool {
    STATE.with(|state| {
        state.waiting[..state.count.get()].iter().filter_map(Cell::get).all(|Waiting { signal, .. }| {
            let known = KNOWN.get(signal as usize);
            known.is_some_and(|known| known.flags.load(Ordering::Relaxed) & libc::SA_RESTART != 0)
        })
    })
}

/// Readable while a signal waits that asks this process to end ([`OpenOptions::ending`]).
///
/// [`OpenOptions::ending`]: blockyard_session::open::OpenOptions::ending
pub(crate) fn ending() -> Option<Arc<EventFd>> {
    if known_ending().is_none() {
        // One thread at a time connects.
        ENDING.store(Arc::into_raw(Arc::new(EventFd::guarded().ok()?)).cast_mut(), Ordering::Release);
    }
    let event: *const EventFd = known_ending()?;
    // SAFETY: it was made of such a one, which is never given up.
    let ending = unsafe {
        Arc::increment_strong_count(event);
        Arc::from_raw(event)
    };
    tell_of_end();
    Some(ending)
}

/// The same, if there has been a connection; without making anything.
pub(crate) fn known_ending() -> Option<&'static EventFd> {
    // SAFETY: it is null, or was leaked for ever.
    unsafe { ENDING.load(Ordering::Acquire).as_ref() }
}

/// Whether such a signal waits.
pub(crate) fn is_ending() -> bool {
    ASKED.load(Ordering::SeqCst) > 0
}

fn tell_of_end() {
    if let Some(event) = known_ending() {
        if !is_ending() {
            event.take();
        }
        // One may have come meanwhile.
        if is_ending() {
            event.ring();
        }
    }
}

/// In a child: its parent's signals are not its own, and neither is the event.
pub(crate) fn forget_all() {
    ENDING.store(null_mut(), Ordering::Release);
    ASKED.store(0, Ordering::SeqCst);
}

impl State {
    #[cold]
    fn learn_mask(&self) -> bool {
        let mut mask = 0_u64;
        // SAFETY: there is room for a set of signals as the kernel has it.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, null::<u64>(), &raw mut mask, 8) };
        let are_blocked = mask & FAULTS != 0;
        mask_changes(mask);
        self.blocks_faults.set(Some(are_blocked));
        are_blocked
    }

    /// Keeps a signal for later: whether there was room.
    fn keep(&self, signal: c_int, information: &siginfo_t, mask: &mut u64) -> bool {
        let count = self.count.get();
        let Some(place) = self.waiting.get(count) else { return false };
        place.set(Some(Waiting { signal, information: *information }));
        self.count.set(count + 1);
        if count == 0 {
            self.mask.set(*mask);
        }
        if ASKING.contains(&signal) {
            ASKED.fetch_add(1, Ordering::SeqCst);
            tell_of_end();
        }
        // When the handler ends, no other comes, but for a fault: the kernel ends a thread that has blocked its own.
        *mask = !FAULTS;
        true
    }

    /// What has waited comes now.
    #[cold]
    fn let_come(&self) {
        for place in &self.waiting[..self.count.replace(0)] {
            let Some(Waiting { signal, mut information }) = place.take() else { continue };
            if ASKING.contains(&signal) {
                ASKED.fetch_sub(1, Ordering::SeqCst);
                tell_of_end();
            }
            // SAFETY: they are this thread's numbers and what the kernel has said of the signal.
            unsafe {
                let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
                libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, &raw mut information);
            }
        }
        set_mask(self.mask.get());
    }
}

/// What glibc answers.
///
/// # Safety
/// As sigaction(2).
unsafe fn kernels(signal: c_int, action: *const sigaction, before: *mut sigaction) -> c_int {
    own!(sigaction(signal: c_int, action: *const sigaction, before: *mut sigaction) -> c_int)
}

/// Whether this library hears of it whatever the program does about it.
fn is_ours(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS)
}

/// What the kernel does about a signal now.
fn current(signal: c_int) -> Option<sigaction> {
    // SAFETY: all of it is numbers.
    let mut action: sigaction = unsafe { zeroed() };
    // SAFETY: there is room for it.
    (unsafe { kernels(signal, null(), &raw mut action) } == 0).then_some(action)
}

/// Whether a handler is this library's.
fn is_caught(handler: sighandler_t) -> bool {
    handler == caught as *const () as usize
}

/// What the program does about a signal, if there are disks.
fn known(signal: c_int) -> Option<&'static Known> {
    usize::try_from(signal).ok().and_then(|signal| KNOWN.get(signal)).filter(|_| has_disks())
}

/// From now on, memory may be missing.
pub(crate) fn catch_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // A program may have been started with it ignored; a child has what its parent had.
        if let Some(action) = current(signal).filter(|action| !is_caught(action.sa_sigaction)) {
            set(signal, &KNOWN[signal as usize], action, null_mut());
        }
    }
}

/// What the program sets for a signal, or asks of one; `None` where that is for libc alone.
pub(crate) fn program_sets(signal: c_int, action: *const sigaction, before: *mut sigaction) -> Option<c_int> {
    let known = known(signal)?;
    // SAFETY: the program's, as of sigaction(2).
    let Some(action) = (unsafe { action.as_ref() }) else {
        // SAFETY: the program's, as of sigaction(2).
        let asked = unsafe { kernels(signal, null(), before) };
        restore(known.handler.load(Ordering::Relaxed), known.flags.load(Ordering::Relaxed), before);
        return Some(asked);
    };
    Some(set(signal, known, *action, before))
}

/// The same where libc has set it already, and says what was set before.
pub(crate) fn program_has_set(signal: c_int, before: sighandler_t) -> sighandler_t {
    let Some(known) = known(signal).filter(|_| before != libc::SIG_ERR) else { return before };
    let earlier = known.handler.load(Ordering::Relaxed);
    if let Some(action) = current(signal).filter(|action| !is_caught(action.sa_sigaction)) {
        set(signal, known, action, null_mut());
    }
    if is_caught(before) { earlier } else { before }
}

/// Has the kernel call this library for a signal, and this library what the action says.
fn set(signal: c_int, known: &Known, action: sigaction, before: *mut sigaction) -> c_int {
    let mut ours = action;
    if is_ours(signal) || !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        ours.sa_sigaction = caught as *const () as usize;
        ours.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        if is_ours(signal) {
            ours.sa_flags |= libc::SA_ONSTACK;
        }
    }
    let earlier = (known.handler.load(Ordering::Relaxed), known.flags.load(Ordering::Relaxed));
    known.handler.store(action.sa_sigaction, Ordering::Relaxed);
    known.flags.store(action.sa_flags, Ordering::Relaxed);
    // SAFETY: the function takes such a signal; there is room for what was there.
    let answer = unsafe { kernels(signal, &raw const ours, before) };
    if answer != 0 {
        known.handler.store(earlier.0, Ordering::Relaxed);
        known.flags.store(earlier.1, Ordering::Relaxed);
    }
    restore(earlier.0, earlier.1, before);
    answer
}

/// What the program had set, in place of what the kernel had, if that was this library.
fn restore(handler: usize, flags: c_int, before: *mut sigaction) {
    // SAFETY: the program's, as of sigaction(2), or null.
    if let Some(before) = unsafe { before.as_mut() }
        && is_caught(before.sa_sigaction)
    {
        before.sa_sigaction = handler;
        if handler == libc::SIG_DFL && flags == 0 {
            // As where nobody has ever set anything.
            before.sa_flags = 0;
        }
        before.sa_flags = before.sa_flags & !OWN_FLAGS | flags & OWN_FLAGS;
    }
}

extern "C" fn caught(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, for this handler.
    let context_of_thread = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let at = &mut context_of_thread.uc_mcontext.gregs[libc::REG_RIP as usize];
    if let Some(end) = guarded::end_of_access(*at).filter(|_| is_ours(signal)) {
        *at = end;
        return;
    }
    // SAFETY: the kernel's, for this handler.
    let information_of_it = unsafe { &*information };
    // A fault is the thread's own, here and now; all else was sent by somebody, or waited for.
    let is_fault = information_of_it.si_code > 0
        && matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS);
    // SAFETY: of a set of signals, the kernel has these bits there.
    let mask = unsafe { &mut *(&raw mut context_of_thread.uc_sigmask).cast::<u64>() };
    let waits = |state: &State| state.depth.get() > 0 && !is_fault && state.keep(signal, information_of_it, mask);
    if STATE.with(waits) {
        return;
    }
    let Some(known) = KNOWN.get(signal as usize) else { return };
    let (handler, flags) = (known.handler.load(Ordering::Relaxed), known.flags.load(Ordering::Relaxed));
    match handler {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            default_from_now_on(signal);
            // What has failed fails again, and ends this process.
            if !is_fault {
                // SAFETY: it comes as soon as this handler is over.
                unsafe { libc::raise(signal) };
            }
        }
        handler => {
            if flags & libc::SA_RESETHAND != 0 {
                known.handler.store(libc::SIG_DFL, Ordering::Relaxed);
                if !is_ours(signal) {
                    default_from_now_on(signal);
                }
            }
            // SAFETY: it is the program's handler. One without SA_SIGINFO looks at the first argument alone.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { transmute(handler) };
            // What is blocked meanwhile, the context does not say (ppoll(2)).
            STATE.with(State::learn_mask);
            handler(signal, information, context);
            // It may have changed what the thread blocks afterwards.
            mask_changes(*mask);
        }
    }
}

/// Ends this process as a signal does.
pub(crate) fn end_by(signal: c_int) {
    default_from_now_on(signal);
    set_mask(0);
    // SAFETY: numbers.
    unsafe { libc::kill(libc::getpid(), signal) };
}

fn default_from_now_on(signal: c_int) {
    // SAFETY: all of it is numbers; what it says is what is done where nobody says anything.
    let default: sigaction = unsafe { zeroed() };
    // SAFETY: as sigaction(2) takes it.
    unsafe { kernels(signal, &raw const default, null_mut()) };
}
