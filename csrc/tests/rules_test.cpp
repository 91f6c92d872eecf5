// tests/rules_test.cpp: a game breaks the rules that it breaks, is changed within its bounds, and is told so by frame and rule.
#include "core/chess/rules.h"

#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "check.h"
#include "core/chess/encode.h"
#include "core/chess/rescore.h"
#include "random.h"

using namespace millstream;

namespace {

// Frames with two kings and one legal move each, or with anything in them.
struct Game {
  std::vector<GameFrame> fields;
  std::vector<std::uint32_t> ends;
  std::vector<std::uint16_t> moves;
  std::vector<float> probabilities;

  explicit Game(std::size_t count) : fields(count), moves(count, 100), probabilities(count, 1.0F) {
    for (std::size_t ply = 0; ply < count; ++ply) {
      fields[ply].input_format = 1;
      fields[ply].planes[king] = reverse_files(board_of(4)), fields[ply].planes[6 + king] = reverse_files(board_of(60));
      ends.push_back(static_cast<std::uint32_t>(ply + 1));
    }
  }

  Game(std::size_t count, Random& random) : fields(count) {
    for (std::size_t ply = 0; ply < count; ++ply) {
      auto* bytes = reinterpret_cast<std::uint8_t*>(&fields[ply]);
      for (std::size_t at = 0; at < sizeof(GameFrame); ++at) bytes[at] = static_cast<std::uint8_t>(random.word() & random.word());
      for (auto left = random.below(40); left > 0; --left) {
        moves.push_back(static_cast<std::uint16_t>(random.below(policy_size)));
        probabilities.push_back(random.chance(5) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(random.below(100)) / 50.0F);
      }
      ends.push_back(static_cast<std::uint32_t>(moves.size()));
    }
  }

  FrameColumns columns() const { return {fields, ends, moves, probabilities}; }
};

bool tells(const std::vector<Fault>& faults, std::size_t ply, std::string_view reason) {
  return faults.size() == 1 && faults[0].ply == ply && faults[0].reason == reason;
}

void a_fault_is_the_first_frame_that_breaks_a_rule() {
  Game game(4);
  CHECK(value_faults(game.columns()).empty());
  game.fields[2].root_q = 2, game.fields[3].root_q = std::nanf("");
  auto faults = value_faults(game.columns());
  CHECK(tells(faults, 2, "root_q out of range") && faults[0].found == 2 && !faults[0].is_whole);
  game.fields[1].input_format = 0;
  faults = value_faults(game.columns());
  CHECK(faults.size() == 2 && faults[0].ply == 1 && faults[0].is_whole);
  CHECK(value_faults(Game(0).columns()).empty());
}

void policies_sum_to_1_and_name_what_was_played() {
  Game game(2);
  game.fields[1].visits = 1, game.fields[1].played_idx = game.fields[1].best_idx = 100;
  CHECK(value_faults(game.columns()).empty());
  game.fields[1].best_idx = 101;
  CHECK(tells(value_faults(game.columns()), 1, "best_idx marked illegal"));
  game.fields[1].best_idx = 100, game.probabilities[0] = 0.5F;
  CHECK(tells(value_faults(game.columns()), 0, "policy does not sum to 1"));
}

void a_game_of_any_content_is_looked_at_and_changed_within_its_bounds() {
  Random random{5};
  for (int i = 0; i < 200; ++i) {
    const Game game(random.below(10), random);
    const auto columns = game.columns();
    columns.check();
    const auto positions = positions_of(game.fields);
    const auto moves = moves_of(positions);
    for (const auto& fault : value_faults(columns)) CHECK(fault.ply < game.fields.size());
    for (const auto& fault : move_faults(columns, positions, moves)) CHECK(fault.ply < moves.size());
    try {
      const auto made = convert(columns, positions, 5, random.chance(2));
      CHECK(made.fields.size() == game.fields.size() && made.moves.size() == game.moves.size());
    } catch (const FrameError&) {
    }
    auto fields = game.fields;
    if (!fields.empty()) deblunder(fields, random.below(fields.size()), {0.1, 0.06, random.chance(2)});
    add_averages(fields, 0.5);
    try {
      CHECK(adjust_policies(columns, {}, -0.1, 2).size() == game.moves.size());
    } catch (const FrameError&) {
    }
  }
}

void what_does_not_fit_is_refused() {
  Game game(2);
  game.fields[1].visits = 1;
  CHECK_THROWS(deblunder(game.fields, 2, {0.1, 0, false}), std::out_of_range);
  CHECK_THROWS(adjust_policies(game.columns(), std::vector<double>(1), 0, 1), std::invalid_argument);
}

void averages_look_ahead() {
  Game game(2);
  game.fields[0].root_q = 0.5F, game.fields[1].root_q = 1;
  add_averages(game.fields, 0.5);
  CHECK(game.fields[1].q_st == 1 && game.fields[0].q_st == -0.25F);
}

}  // namespace

int main() {
  a_fault_is_the_first_frame_that_breaks_a_rule();
  policies_sum_to_1_and_name_what_was_played();
  a_game_of_any_content_is_looked_at_and_changed_within_its_bounds();
  what_does_not_fit_is_refused();
  averages_look_ahead();
}
