// bind/parse.cpp: raw bytes into columns for millstream.sources, the index of an archive for millstream.games.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "bind/module.h"
#include "core/parse/csv.h"
#include "core/parse/json_array.h"
#include "core/parse/jsonl.h"
#include "core/parse/lines.h"
#include "core/parse/tar.h"

using namespace nb::literals;

namespace {

using Raw = Array<const std::uint8_t>;
using Numbers = Made<std::int64_t>;
// text, ends, rows, starts, stops, odd (row, start, stop, row, ...), rows in all, blank, empty
using Parsed = std::tuple<Made<std::uint8_t>, Numbers, Numbers, Numbers, Numbers, Numbers, std::int64_t, std::int64_t,
                          std::int64_t>;

Parsed handed_over(millstream::Columns&& columns) {
  const std::size_t size = columns.text_bytes();
  std::uint8_t* text = columns.take_text().release();
  nb::capsule owner(text, [](void* data) noexcept { delete[] static_cast<std::uint8_t*>(data); });
  return {Made<std::uint8_t>(text, {size}, owner),
          made(std::move(columns.ends)),
          made(std::move(columns.rows)),
          made(std::move(columns.starts)),
          made(std::move(columns.stops)),
          made(std::move(columns.odd)),
          columns.row_count,
          columns.blank,
          columns.empty};
}

template <typename Parse>
Parsed unlocked(Parse&& parse) {
  auto columns = [&] {
    nb::gil_scoped_release released;  // the arguments keep their buffers alive
    return parse();
  }();
  return handed_over(std::move(columns));
}

template <typename Use>
auto with_delimiter(char delimiter, Use&& use) {
  switch (delimiter) {
    case ',': return use(millstream::Csv<','>());
    case '\t': return use(millstream::Csv<'\t'>());
    case ';': return use(millstream::Csv<';'>());
    case '|': return use(millstream::Csv<'|'>());
    default: throw std::invalid_argument("a delimiter is a comma, a tab, a semicolon or a bar");
  }
}

std::vector<std::int64_t> invalid_texts(Raw text, Array<const std::int64_t> ends) {
  nb::gil_scoped_release released;
  std::vector<std::int64_t> invalid;
  const auto stops = view(ends);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < stops.size(); begin = stops[i++]) {
    if (begin < 0 || stops[i] < begin || stops[i] > static_cast<std::int64_t>(text.size()))
      throw std::invalid_argument("ends do not fit the text");
    if (!millstream::is_utf8(text.data() + begin, static_cast<std::size_t>(stops[i] - begin)))
      invalid.push_back(static_cast<std::int64_t>(i));
  }
  return invalid;
}

millstream::TarIndex indexed(int descriptor, std::uint32_t most_bytes) {
  try {
    nb::gil_scoped_release released;
    const millstream::TarFile file(descriptor);
    return millstream::TarReader(file, most_bytes).index();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
}

auto tar_index(int descriptor, std::uint32_t most_bytes) {
  auto index = indexed(descriptor, most_bytes);
  nb::dict skipped;
  for (std::size_t i = 0; i < index.skipped.size(); ++i)
    if (index.skipped[i]) skipped[millstream::tar_skip_names[i]] = index.skipped[i];
  return std::tuple(made(std::move(index.offsets)), made(std::move(index.sizes)), made(std::move(index.inflated)),
                    made(std::move(index.gzip)), skipped, std::string(index.problem), index.problem_at, index.has_end);
}

}  // namespace

void register_parse(nb::module_& m) {
  m.def("parse_jsonl", [](Raw data, const std::string& field) {
    return unlocked([&] { return millstream::parse_jsonl(view(data), field); });
  }, "data"_a, "field"_a,
     "The texts of lines of JSON: (text, ends, rows, starts, stops, odd, rows in all, blank lines, empty texts).");
  m.def("parse_lines", [](Raw data, const std::string& separator, bool trim) {
    if (separator.empty()) throw std::invalid_argument("the separator is empty");
    return unlocked([&] { return millstream::parse_lines(view(data), separator, trim); });
  }, "data"_a, "separator"_a, "trim"_a, "The texts between separators; the same columns as of `parse_jsonl`.");
  m.def("parse_csv", [](Raw data, char delimiter, std::size_t column, std::size_t most) {
    return unlocked([&] {
      return with_delimiter(delimiter, [&](auto csv) { return decltype(csv)::parse(view(data), column, most); });
    });
  }, "data"_a, "delimiter"_a, "column"_a, "most"_a, "The texts in one column of a table; the same columns as of `parse_jsonl`.");
  m.def("cut_separated", [](Raw data, const std::string& separator) {
    if (separator.empty()) throw std::invalid_argument("the separator is empty");
    nb::gil_scoped_release released;
    return millstream::cut_separated(view(data), separator);
  }, "data"_a, "separator"_a, "How many bytes end with the last separator.");
  m.def("cut_csv", [](Raw data, char delimiter, bool first) {
    nb::gil_scoped_release released;
    return with_delimiter(delimiter, [&](auto csv) { return decltype(csv)::cut(view(data), first); });
  }, "data"_a, "delimiter"_a, "first"_a = false,
     "How many bytes end with the last whole record of a table, or with the first one.");
  m.def("cut_array", [](Raw data) {
    nb::gil_scoped_release released;
    return millstream::cut_array(view(data)).whole;
  }, "data"_a, "How many bytes, from inside a JSON array, end with the last comma between its elements.");
  m.def("array_lines", [](Raw data) {
    millstream::ArrayScan scan;
    std::vector<std::uint8_t> lines(data.size());
    {
      nb::gil_scoped_release released;
      scan = millstream::array_lines(view(data), lines.data());
    }
    return std::tuple(nb::bytes(lines.data(), lines.size()), scan.whole, scan.stop, scan.open);
  }, "data"_a,
     "Elements of a JSON array as lines: (lines, bytes up to the last comma, the place behind the array or 0, whether the "
     "last element is open).");
  m.def("invalid_texts", &invalid_texts, "text"_a, "ends"_a, "Which of the texts are not UTF-8.");
  m.def("tar_index", &tar_index, "descriptor"_a, "most_bytes"_a,
        nb::sig("def tar_index(descriptor: int, most_bytes: int) -> tuple[NDArray[numpy.uint64], NDArray[numpy.uint32], "
                "NDArray[numpy.uint32], NDArray[numpy.uint8], dict[str, int], str, int, bool]"),
        "Members of an uncompressed tar that may be games: (offsets, sizes, inflated sizes, whether they are gzip, how "
        "many others by reason, what ended the index early or nothing, where, whether the archive has its end).");
}
