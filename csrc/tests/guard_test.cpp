// tests/guard_test.cpp: a page that vanishes is noticed where it was read, and nowhere else.
#include "core/memory/guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "core/store/shards.h"
#include "stores.h"

using namespace millstream;

namespace {

// A mapped file of which only the first page is left.
class Vanished {
 public:
  Vanished() {
    write_file(folder_ / "data", std::vector<std::byte>(1 << 20, std::byte{3}));
    mapping_ = std::make_unique<Mapping>(folder_ / "data");
    std::filesystem::resize_file(folder_ / "data", 100);
  }
  std::byte there() const { return read(0); }
  std::byte gone() const { return read(1 << 19); }

 private:
  std::byte read(std::size_t at) const {
    const volatile std::byte* const data = mapping_->bytes().data();
    return static_cast<std::byte>(data[at]);
  }

  Folder folder_;
  std::unique_ptr<Mapping> mapping_;
};

bool clean() { return guard_detail::escape == nullptr; }

void a_vanished_page_is_noticed_and_the_rest_goes_on() {
  const Vanished file;
  for (int round = 0; round < 1000; ++round) {
    CHECK(survives([&] { CHECK(file.there() == std::byte{3}); }));
    CHECK(!survives([&] { (void)file.gone(); }));
    CHECK(clean());
  }
}

void what_was_done_before_the_page_vanished_stays() {
  const Vanished file;
  int steps = 0;
  auto* const counted = const_cast<volatile int*>(&steps);
  CHECK(!survives([&] {
    *counted = 1;
    (void)file.gone();
    *counted = 2;
  }));
  CHECK(*counted == 1);
}

void guards_may_be_nested() {
  const Vanished file;
  bool inner = true;
  CHECK(survives([&] {
    inner = survives([&] { (void)file.gone(); });
    CHECK(!clean());  // the outer one still stands
  }));
  CHECK(!inner && clean());
  CHECK(!survives([&] {
    CHECK(survives([&] { (void)file.there(); }));
    (void)file.gone();
  }));
  CHECK(clean());
}

void exceptions_pass_through_and_leave_nothing_behind() {
  const Vanished file;
  CHECK_THROWS(survives([] { throw std::runtime_error("no"); }), std::runtime_error);
  CHECK(clean());
  bool caught = false;
  CHECK(survives([&] {
    try {
      (void)survives([] { throw 5; });
    } catch (int) {
      caught = true;
    }
    CHECK(!clean());
  }));
  CHECK(caught && clean() && !survives([&] { (void)file.gone(); }));
}

void each_thread_has_its_own_guard() {
  const Vanished file;
  std::atomic<int> noticed = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        CHECK(clean());
        for (int round = 0; round < 500; ++round) {
          if (i % 2 == 0) noticed += !survives([&] { (void)file.gone(); });
          else CHECK(survives([&] { (void)file.there(); }) && clean());
        }
      });
  }
  CHECK(noticed == 1000);
}

// Also when a handler that blocks every signal stands before ours and passes this one on.
void the_blocked_signals_are_the_same_afterwards() {
  const Vanished file;
  struct sigaction ours = {}, theirs = {};
  sigaction(SIGBUS, nullptr, &ours);
  theirs.sa_sigaction = [](int signal, siginfo_t* info, void* context) { guard_detail::on_bus_error(signal, info, context); };
  theirs.sa_flags = SA_SIGINFO;
  sigfillset(&theirs.sa_mask);
  sigset_t before, after;
  sigemptyset(&before);
  sigaddset(&before, SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const auto& handler : {ours, theirs}) {
    sigaction(SIGBUS, &handler, nullptr);
    for (int round = 0; round < 3; ++round) CHECK(!survives([&] { (void)file.gone(); }));
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (const int signal : {SIGUSR1, SIGUSR2, SIGINT, SIGBUS, SIGSEGV})
      CHECK(sigismember(&after, signal) == (signal == SIGUSR1 ? 1 : 0));
  }
  sigaction(SIGBUS, &ours, nullptr);
}

void installing_twice_does_not_call_ourselves() {
  install_guard();
  install_guard();
  CHECK(guard_detail::previous.sa_sigaction != guard_detail::on_bus_error);
}

// What a child that does `act` ends with: its exit code, or minus the signal that ended it.
template <typename Act>
int outcome_of(const Act& act) {
  const auto child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    act();
    ::_exit(0);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void a_page_that_nobody_guards_ends_the_process_as_before() {
  const Vanished file;
  CHECK(outcome_of([&] {
          std::signal(SIGBUS, SIG_DFL);
          install_guard();
          (void)file.gone();
        }) == -SIGBUS);
  CHECK(outcome_of([&] {
          std::signal(SIGBUS, [](int) { ::_exit(42); });
          install_guard();
          CHECK(!survives([&] { (void)file.gone(); }));
          (void)file.gone();
        }) == 42);
  CHECK(outcome_of([&] {
          struct sigaction theirs = {};
          theirs.sa_sigaction = [](int, siginfo_t* info, void*) { ::_exit(info->si_addr != nullptr ? 43 : 1); };
          theirs.sa_flags = SA_SIGINFO;
          sigaction(SIGBUS, &theirs, nullptr);
          install_guard();
          (void)file.gone();
        }) == 43);
}

}  // namespace

int main() {
  install_guard();
  a_vanished_page_is_noticed_and_the_rest_goes_on();
  what_was_done_before_the_page_vanished_stays();
  guards_may_be_nested();
  exceptions_pass_through_and_leave_nothing_behind();
  each_thread_has_its_own_guard();
  the_blocked_signals_are_the_same_afterwards();
  installing_twice_does_not_call_ourselves();
  a_page_that_nobody_guards_ends_the_process_as_before();
}
