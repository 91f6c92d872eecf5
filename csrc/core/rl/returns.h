// core/rl/returns.h: sums and backward scans over the tokens of many rollouts, which lie end to end.
//
// `ends` says where each rollout's tokens end, `mask` which tokens the policy sampled; the others count as if they were
// not there. Columns are float or double, what is added up is double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace millstream {

using Ends = std::span<const std::int64_t>;
using Mask = std::span<const bool>;

// The one check of bounds: every function below calls it, then trusts `ends`.
inline void check_ends(Ends ends, std::size_t tokens) {
  std::int64_t last = 0;
  for (const auto end : ends) {
    if (end < last) throw std::invalid_argument("`ends` goes down");
    last = end;
  }
  if (static_cast<std::size_t>(last) != tokens)
    throw std::invalid_argument("the last rollout ends at " + std::to_string(last) + ", not at " + std::to_string(tokens));
}

inline void check_size(const char* name, std::size_t found, std::size_t wanted) {
  if (found != wanted)
    throw std::invalid_argument(std::string("`") + name + "` has " + std::to_string(found) + " values, not " + std::to_string(wanted));
}

// Calls `visit(row, start, stop)` for every rollout.
template <typename Visit>
void each_rollout(Ends ends, Visit visit) {
  std::size_t start = 0;
  for (std::size_t row = 0; row < ends.size(); ++row) {
    const auto stop = static_cast<std::size_t>(ends[row]);
    visit(row, start, stop);
    start = stop;
  }
}

inline void masked_counts(Mask mask, Ends ends, std::span<std::int64_t> out) {
  check_ends(ends, mask.size());
  check_size("out", out.size(), ends.size());
  each_rollout(ends, [&](std::size_t row, std::size_t start, std::size_t stop) {
    std::int64_t count = 0;
    for (auto token = start; token < stop; ++token) count += mask[token];
    out[row] = count;
  });
}

template <typename Real>
void masked_sums(std::span<const Real> values, Mask mask, Ends ends, std::span<double> out) {
  check_ends(ends, mask.size());
  check_size("values", values.size(), mask.size());
  check_size("out", out.size(), ends.size());
  each_rollout(ends, [&](std::size_t row, std::size_t start, std::size_t stop) {
    double sum = 0;
    for (auto token = start; token < stop; ++token) sum += mask[token] ? static_cast<double>(values[token]) : 0.0;
    out[row] = sum;
  });
}

// Gives every masked token the value of its rollout, and the others 0.
template <typename Real>
void spread_rows(std::span<const double> rows, Mask mask, Ends ends, std::span<Real> out) {
  check_ends(ends, mask.size());
  check_size("rows", rows.size(), ends.size());
  check_size("out", out.size(), mask.size());
  each_rollout(ends, [&](std::size_t row, std::size_t start, std::size_t stop) {
    const auto value = static_cast<Real>(rows[row]);
    for (auto token = start; token < stop; ++token) out[token] = mask[token] ? value : Real{0};
  });
}

struct Moments {
  std::int64_t count = 0;
  double mean = 0;
  double squares = 0;  // of the distances from the mean, added up
};

template <typename Real>
Moments masked_moments(std::span<const Real> values, Mask mask) {
  check_size("values", values.size(), mask.size());
  Moments found;
  double sum = 0;
  for (std::size_t token = 0; token < mask.size(); ++token) {
    found.count += mask[token];
    sum += mask[token] ? static_cast<double>(values[token]) : 0.0;
  }
  if (found.count == 0) return found;
  found.mean = sum / static_cast<double>(found.count);
  for (std::size_t token = 0; token < mask.size(); ++token) {
    const double distance = mask[token] ? static_cast<double>(values[token]) - found.mean : 0.0;
    found.squares += distance * distance;
  }
  return found;
}

// (value - shift) * scale + lift where the mask is set, 0 elsewhere.
template <typename Real>
void rescale(std::span<const Real> values, Mask mask, double shift, double scale, double lift, std::span<Real> out) {
  check_size("values", values.size(), mask.size());
  check_size("out", out.size(), mask.size());
  for (std::size_t token = 0; token < mask.size(); ++token)
    out[token] = mask[token] ? static_cast<Real>((static_cast<double>(values[token]) - shift) * scale + lift) : Real{0};
}

// What a scan reads. An empty span stands for zeros; `mask` and `rewards` are always there.
template <typename Real>
struct Trajectories {
  Ends ends;
  Mask mask;
  std::span<const double> rewards;      // one per rollout, on top of its last masked token; NaN: it was not scored
  std::span<const Real> token_rewards;  // one per token
  std::span<const Real> values;         // one per token
  Mask done;                            // an episode ends with this token, masked or not
  std::span<const double> bootstrap;    // one per rollout: the value of what would have followed its last token

  void check() const {
    check_ends(ends, mask.size());
    check_size("rewards", rewards.size(), ends.size());
    if (!token_rewards.empty()) check_size("token_rewards", token_rewards.size(), mask.size());
    if (!values.empty()) check_size("values", values.size(), mask.size());
    if (!done.empty()) check_size("done", done.size(), mask.size());
    if (!bootstrap.empty()) check_size("bootstrap", bootstrap.size(), ends.size());
  }
};

// Generalised advantages of one rollout, from its end. A token that is not masked is stepped over: it neither discounts
// nor carries a value of its own. Without values, and with lambda 1, this is the discounted sum of rewards to come.
// Gives whether all of them are finite numbers.
template <typename Real>
bool scan_rollout(const Trajectories<Real>& from, std::size_t row, std::size_t start, std::size_t stop, double gamma,
                  double lambda, std::span<Real> advantages, std::span<Real> returns) {
  const bool scored = !std::isnan(from.rewards[row]);
  double next_value = from.bootstrap.empty() ? 0.0 : from.bootstrap[row];
  double next_advantage = 0, at_the_end = from.rewards[row];
  bool finite = true;
  for (auto token = stop; token-- > start;) {
    if (!from.done.empty() && from.done[token]) next_value = next_advantage = 0;
    advantages[token] = 0;
    if (!returns.empty()) returns[token] = 0;
    if (!from.mask[token]) continue;
    const double value = from.values.empty() ? 0.0 : static_cast<double>(from.values[token]);
    double advantage = 0;
    if (scored) {
      const double reward = at_the_end + (from.token_rewards.empty() ? 0.0 : static_cast<double>(from.token_rewards[token]));
      advantage = reward + gamma * next_value - value + gamma * lambda * next_advantage;
    }
    at_the_end = 0;
    next_value = value;
    next_advantage = advantage;
    finite = finite && std::isfinite(advantage + value);
    advantages[token] = static_cast<Real>(advantage);
    if (!returns.empty()) returns[token] = static_cast<Real>(advantage + value);
  }
  return finite;
}

// Scans every rollout; `returns` may be empty, if they are not wanted. Gives the first rollout with something that is not
// a finite number, or -1.
template <typename Real>
std::int64_t scan_returns(const Trajectories<Real>& from, double gamma, double lambda, std::span<Real> advantages,
                          std::span<Real> returns) {
  from.check();
  check_size("advantages", advantages.size(), from.mask.size());
  if (!returns.empty()) check_size("returns", returns.size(), from.mask.size());
  std::int64_t broken = -1;
  each_rollout(from.ends, [&](std::size_t row, std::size_t start, std::size_t stop) {
    const bool finite = scan_rollout(from, row, start, stop, gamma, lambda, advantages, returns);
    if (!finite && broken < 0) broken = static_cast<std::int64_t>(row);
  });
  return broken;
}

}  // namespace millstream
