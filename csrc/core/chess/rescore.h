// core/chess/rescore.h: what a game should be learned from, where no table is asked: results without blunders, averages of later
// plies, policies sharpened or flattened.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/chess/frames.h"

namespace millstream {

struct Deblunder {
  double threshold;  // how much worse than the best move a blunder is
  double width;      // around the threshold, how far old and new result are mixed
  bool own_result;   // begin with the result of the frame where the walk begins, and not with that of the last one
};

namespace rescore {

inline constexpr unsigned proven = 0x08;  // of `invariance_info`: the value of the best move is

// How much of the result a blunder makes forgotten; nothing for any other move.
inline std::optional<double> blunder_share(const GameFrame& frame, const Deblunder& how) {
  const double best = frame.best_q, played = frame.played_q, loss = best - played;
  if (best > -1 && played < 1 && ((best == 1 && frame.invariance_info & proven) || played == -1)) return 1;
  if (!(loss > how.threshold - how.width / 2)) return {};
  return how.width > 0 ? std::min(1.0, (loss - how.threshold) / how.width + 0.5) : 1;
}

}  // namespace rescore

// Walks back from frame `last`; from the first blunder on, writes what would have come of the best moves.
inline void deblunder(std::span<GameFrame> game, std::size_t last, const Deblunder& how) {
  if (game.empty() || game.back().visits == 0) return;
  if (last >= game.size()) throw std::out_of_range("deblunder: there is no such frame");
  const auto& first = how.own_result ? game[last] : game.back();
  double q = first.result_q, d = first.result_d, left = first.plies_left;
  bool met = false;
  for (auto ply = last + 1; ply-- > 0; q = -q, left += 1) {
    auto& frame = game[ply];
    if (const auto share = rescore::blunder_share(frame, how)) {
      met = true;
      q = (1 - *share) * q + *share * frame.best_q;
      d = (1 - *share) * d + *share * frame.best_d;
      left = (1 - *share) * left + *share * frame.best_m;
    }
    if (!met) continue;
    frame.result_q = static_cast<float>(q), frame.result_d = static_cast<float>(d), frame.plies_left = static_cast<float>(left);
  }
}

// Writes `q_st` and `d_st`: each is `theta` of that of the next ply, seen from here, and the rest of this ply's own value.
inline void add_averages(std::span<GameFrame> game, double theta) {
  double q = 0, d = 0, kept = 0;
  for (auto ply = game.size(); ply-- > 0; kept = theta) {
    auto& frame = game[ply];
    q = kept * -q + (1 - kept) * frame.root_q, d = kept * d + (1 - kept) * frame.root_d;
    frame.q_st = static_cast<float>(q), frame.d_st = static_cast<float>(d);
  }
}

// Policies of which every entry gets `offset` and its own share more, is raised to a power, and is then divided by their sum.
// What is not a number stays; a policy of which nothing is left is an error. `more` may be empty.
inline std::vector<float> adjust_policies(const FrameColumns& game, std::span<const double> more, double offset, double power) {
  if (!more.empty() && more.size() != game.moves.size()) throw std::invalid_argument("policies: one share for each entry");
  std::vector<float> made(game.moves.size());
  std::array<double, policy_size> chances;
  for (std::size_t ply = 0; ply < game.size(); ++ply) {
    const auto first = game.begin_of(ply), count = game.ends[ply] - first;
    double most = 0, sum = 0;
    for (std::size_t entry = 0; entry < count; ++entry) {
      const auto at = first + entry;
      chances[entry] = game.probabilities[at] + offset + (more.empty() ? 0 : more[at]);
      most = std::max(most, chances[entry]);  // never what is not a number
    }
    if (!(most > 0)) throw FrameError("no probability left", "ply " + std::to_string(ply));
    for (std::size_t entry = 0; entry < count; ++entry) {
      auto& chance = chances[entry];
      if (std::isnan(chance)) continue;
      chance = std::pow(std::max(chance, 0.0) / most, power);  // by the largest, which no power makes 0
      sum += chance;
    }
    for (std::size_t entry = 0; entry < count; ++entry)
      made[first + entry] = static_cast<float>(chances[entry] / sum);
  }
  return made;
}

}  // namespace millstream
