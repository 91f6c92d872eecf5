// core/memory/fork.h: notices that this process is a fork of the one that started the threads.
//
// Threads do not survive a fork, but the locks they held stay locked. An owner of threads or locks compares the
// generation and, in a child, starts anew instead of touching the old ones.
#pragma once

#include <pthread.h>

#include <atomic>

namespace millstream {

inline std::atomic<unsigned> fork_count = 0;

inline unsigned fork_generation() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1); });
  (void)registered;
  return fork_count.load(std::memory_order_relaxed);
}

}  // namespace millstream
