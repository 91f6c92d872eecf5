// core/memory/guard.h: a mapped file that shrinks is an error, not the end of the process.
//
// Touching a page behind the end of a mapped file raises SIGBUS on the thread that touched it. While a thread copies
// inside `survives`, our handler jumps out of the copy; any other SIGBUS is passed to the handler before ours, once: it may
// have been installed on top of ours in between, and would send it back.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <csetjmp>
#include <csignal>

namespace millstream {

namespace guard_detail {

inline thread_local sigjmp_buf* volatile escape = nullptr;
inline thread_local bool passed_on = false;
inline struct sigaction previous;

inline void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (escape != nullptr) {
    // A jump leaves the signals blocked that the caller blocked, and the next vanished page would end the process.
    pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(*escape, 1);
  }
  const bool ignored = previous.sa_handler == SIG_IGN;
  if (ignored && info->si_code <= 0) return;  // sent by a process: no access that would be repeated without end
  if (!ignored && previous.sa_handler != SIG_DFL && !passed_on) {
    passed_on = true;
    if (previous.sa_flags & SA_SIGINFO) previous.sa_sigaction(signal, info, context);
    else previous.sa_handler(signal);
    passed_on = false;
    return;
  }
  std::signal(SIGBUS, SIG_DFL);
  std::raise(SIGBUS);  // and now ends the process as it would have without us
}

}  // namespace guard_detail

// Called whenever a ring starts: another handler may have taken the signal in between.
inline void install_guard() {
  struct sigaction current;
  sigaction(SIGBUS, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == guard_detail::on_bus_error) return;
  guard_detail::previous = current;
  struct sigaction ours = {};
  ours.sa_sigaction = guard_detail::on_bus_error;
  sigemptyset(&ours.sa_mask);
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler that we hand it to may raise it again, and means it
  sigaction(SIGBUS, &ours, nullptr);
}

// Runs `copy`; false if a page vanished under it. `copy` must own nothing that a jump would leak: it only moves bytes.
template <typename Copy>
bool survives(const Copy& copy) {
  sigjmp_buf here;
  auto* const outer = guard_detail::escape;
  if (sigsetjmp(here, 0) != 0) {
    guard_detail::escape = outer;
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
