// core/guard.h: a mapped file that shrinks is an error, not the end of the process.
//
// Touching a page behind the end of a mapped file raises SIGBUS on the thread that touched it. While a thread copies
// inside `survives`, our handler jumps out of the copy; any other SIGBUS goes to whoever handled it before us.
#pragma once

#include <atomic>
#include <csetjmp>
#include <csignal>

namespace millstream {

namespace guard_detail {

inline thread_local sigjmp_buf* volatile escape = nullptr;
inline struct sigaction previous;

inline void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (escape != nullptr) siglongjmp(*escape, 1);
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  std::signal(SIGBUS, SIG_DFL);  // the access is repeated on return, and now ends the process as it would have
}

// Whoever delivered the signal to us may have blocked it meanwhile, and a jump does not unblock it.
inline void hear_again() {
  sigset_t bus_error;
  sigemptyset(&bus_error);
  sigaddset(&bus_error, SIGBUS);
  ::pthread_sigmask(SIG_UNBLOCK, &bus_error, nullptr);
}

}  // namespace guard_detail

// Called whenever a ring starts: somebody else may have taken the signal in between.
inline void install_guard() {
  struct sigaction current;
  sigaction(SIGBUS, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == guard_detail::on_bus_error) return;
  guard_detail::previous = current;
  struct sigaction ours = {};
  ours.sa_sigaction = guard_detail::on_bus_error;
  sigemptyset(&ours.sa_mask);
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;  // not deferred: we leave by a jump, which does not restore the mask
  sigaction(SIGBUS, &ours, nullptr);
}

// Runs `copy`; false if a page vanished under it. `copy` must own nothing that a jump would leak: it only moves bytes.
template <typename Copy>
bool survives(const Copy& copy) {
  sigjmp_buf here;
  auto* const outer = guard_detail::escape;
  if (sigsetjmp(here, 0) != 0) {
    guard_detail::escape = outer;
    guard_detail::hear_again();
    return false;
  }
  // The fences keep the compiler from moving the copy out of the guard: only a signal could tell the difference.
  guard_detail::escape = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  try {
    copy();
  } catch (...) {
    guard_detail::escape = outer;
    throw;
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  guard_detail::escape = outer;
  return true;
}

}  // namespace millstream
