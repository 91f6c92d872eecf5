// tests/positions_test.cpp: boards turn there and back, moves have the entries of their names, and frames of any content show
// positions that can be written and looked at.
#include "core/chess/positions.h"

#include <utility>
#include <vector>

#include "check.h"
#include "core/chess/encode.h"
#include "core/chess/legal.h"
#include "core/chess/policy.h"
#include "random.h"

using namespace millstream;

namespace {

constexpr std::uint32_t formats[] = {1, 2, 3, 4, 5, 132, 133};

void every_transform_can_be_undone() {
  Random random{1};
  for (unsigned how = 0; how < 8; ++how)
    for (int i = 0; i < 100; ++i) {
      const auto board = random.word();
      CHECK(undo_transform(transform(board, how), how) == board);
    }
}

void boards_turn_as_their_squares_do() {
  for (unsigned how = 0; how < 8; ++how)
    for (int square = 0; square < 64; ++square)
      CHECK(transform(board_of(square), how) == board_of(policy::turned_square(square, how, false)));
  static_assert(transpose(board_of(0)) == board_of(63) && transpose(board_of(7)) == board_of(7));
}

void every_entry_is_that_of_its_move() {
  for (std::uint16_t entry = 0; entry < policy_size; ++entry)
    for (unsigned how = 0; how < 8; ++how)
      for (const bool half_turn : {false, true}) {
        CHECK(entry_of(policy::tables.moves[entry], 0) == entry);
        const auto there = turn_entry(entry, 0, how);
        if (there != no_entry) CHECK(turn_entry(static_cast<std::uint16_t>(there), how, 0) == entry);
        if (entry < 1792) CHECK(turn_entry(entry, how, 0, half_turn) != no_entry);
      }
  CHECK(turn_entry(policy_size, 0, 0) == no_entry && entry_of({}, 0) == no_entry);
  CHECK(entry_of({48, 56, knight}, 0) == entry_of({48, 56, 0}, 0) && entry_of({48, 56, queen}, 0) == 1792);
}

Position kings_and(std::initializer_list<std::pair<std::size_t, int>> others) {
  Position position{};
  position.castling.fill(-1), position.en_passant = -1;
  position.pieces[king] = board_of(4), position.pieces[6 + king] = board_of(60);
  for (const auto& [piece, square] : others) position.pieces[piece] |= board_of(square);
  return position;
}

void moves_are_legal_where_the_king_stays_safe() {
  const auto pinned = kings_and({{rook, 12}, {6 + rook, 52}});
  CHECK(is_legal(pinned, {12, 52, 0}) && is_legal(pinned, {12, 20, 0}) && !is_legal(pinned, {12, 13, 0}));
  CHECK(!is_legal(pinned, {12, 60, 0}) && !is_legal(pinned, {13, 14, 0}) && !is_legal(pinned, {}));
  auto passing = kings_and({{pawn, 36}, {6 + pawn, 35}});
  CHECK(!is_legal(passing, {36, 43, 0}));
  passing.en_passant = 3;
  CHECK(is_legal(passing, {36, 43, 0}) && !is_legal(passing, {36, 43, queen}));
  auto castling = kings_and({{rook, 7}});
  CHECK(!is_legal(castling, {4, 7, 0}));
  castling.castling[1] = 7;
  CHECK(is_legal(castling, {4, 7, 0}));
  castling.pieces[6 + rook] = board_of(61);
  CHECK(!is_legal(castling, {4, 7, 0}));
}

// The position as the other player sees it.
Position turned(Position position) {
  for (std::size_t piece = 0; piece < 6; ++piece) {
    const auto own = position.pieces[piece];
    position.pieces[piece] = flip_ranks(position.pieces[6 + piece]), position.pieces[6 + piece] = flip_ranks(own);
  }
  std::swap(position.castling[0], position.castling[2]), std::swap(position.castling[1], position.castling[3]);
  position.black = !position.black;
  return position;
}

void two_positions_show_the_move_between_them() {
  const auto before = kings_and({{pawn, 12}, {rook, 7}, {6 + rook, 63}});
  auto after = kings_and({{pawn, 28}, {rook, 7}, {6 + rook, 63}});
  const auto push = move_between(before, turned(after));
  CHECK(push.origin == 12 && push.target == 28 && push.promotion == 0);
  after = kings_and({{pawn, 12}, {rook, 63}});
  const auto take = move_between(before, turned(after));
  CHECK(take.origin == 7 && take.target == 63);
  CHECK(move_between(before, turned(kings_and({{pawn, 12}, {rook, 7}}))).origin == -1);
}

void a_move_leads_to_what_the_next_position_says() {
  auto now = kings_and({{rook, 7}, {pawn, 12}, {6 + rook, 63}});
  now.castling[1] = now.castling[3] = 7, now.rule50 = 5;
  auto next = turned(now);
  next.rule50 = 6;
  CHECK(wrong_behind(now, {7, 15, 0}, next) == Wrong::castling);  // the rook has left
  next.castling[3] = -1;
  CHECK(wrong_behind(now, {7, 15, 0}, next) == Wrong::nothing);
  CHECK(wrong_behind(now, {7, 63, 0}, next) == Wrong::castling);  // the other rook was taken
  next.castling[1] = -1;
  CHECK(wrong_behind(now, {7, 63, 0}, next) == Wrong::rule50);
  CHECK(wrong_behind(now, {12, 28, 0}, next) == Wrong::rule50);
  next.rule50 = 0, next.en_passant = 4;
  CHECK(wrong_behind(now, {12, 28, 0}, next) == Wrong::nothing && wrong_behind(now, {12, 20, 0}, next) == Wrong::en_passant);
  next.black = now.black;
  CHECK(wrong_behind(now, {12, 28, 0}, next) == Wrong::side);
}

std::vector<GameFrame> any_frames(Random& random, std::size_t count) {
  std::vector<GameFrame> frames(count);
  for (auto& frame : frames) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(&frame);
    for (std::size_t at = 0; at < sizeof frame; ++at) bytes[at] = static_cast<std::uint8_t>(random.word() & random.word());
    frame.input_format = formats[random.word() % 7];
  }
  return frames;
}

void frames_of_any_content_show_something() {
  Random random{2};
  for (int i = 0; i < 60; ++i) {
    auto frames = any_frames(random, random.word() % 12);
    const auto game = positions_of(frames);
    const auto moves = moves_of(game);
    CHECK(game.size() == frames.size() && moves.size() + !game.empty() == game.size());
    CHECK(wrong_moves(game, moves).size() == moves.size());
    const auto format = formats[random.word() % 7];
    encode_positions(frames, game, format);
    for (const auto& frame : frames) CHECK(frame.input_format == format);
  }
  auto frames = any_frames(random, 3);
  CHECK_THROWS(encode_positions(frames, std::vector<Position>(2), 1), std::invalid_argument);
}

void every_legal_looking_move_is_looked_at_within_the_board() {
  Random random{3};
  for (int i = 0; i < 20000; ++i) {
    Position position{};
    for (auto& board : position.pieces) board = random.word() & random.word() & random.word();
    for (auto& file : position.castling) file = static_cast<std::int8_t>(static_cast<int>(random.word() % 9) - 1);
    position.en_passant = static_cast<std::int8_t>(static_cast<int>(random.word() % 9) - 1);
    (void)is_legal(position, {static_cast<std::int8_t>(random.word() % 64), static_cast<std::int8_t>(random.word() % 64),
                              static_cast<std::int8_t>(random.word() % 5)});
  }
}

}  // namespace

int main() {
  every_transform_can_be_undone();
  boards_turn_as_their_squares_do();
  every_entry_is_that_of_its_move();
  moves_are_legal_where_the_king_stays_safe();
  two_positions_show_the_move_between_them();
  a_move_leads_to_what_the_next_position_says();
  frames_of_any_content_show_something();
  every_legal_looking_move_is_looked_at_within_the_board();
}
