#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/staged_file.hpp"
#include "job/result_writer.hpp"

namespace stagecoach::job {
namespace {

/// Takes the top-level "id" of a line, in its text form, and stops the parser there.
struct IdReader {
  using Json = nlohmann::json;

  bool start_object(std::size_t) {
    ++depth;
    return true;
  }
  bool end_object() {
    --depth;
    return true;
  }
  bool start_array(std::size_t) { return start_object(0); }
  bool end_array() { return end_object(); }
  bool key(std::string& name) {
    is_id = depth == 1 && name == "id";
    return true;
  }
  bool string(std::string& text) { return take(text); }
  bool number_unsigned(std::uint64_t number) { return take(fmt::format("{}", number)); }
  bool number_integer(std::int64_t number) { return take(fmt::format("{}", number)); }
  bool number_float(double, const std::string& text) { return take(text); }
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool binary(Json::binary_t&) { return true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

  bool take(std::string text) {
    if (is_id) {
      id = std::move(text);
      found = true;
    }
    return !found;
  }

  int depth = 0;
  bool is_id = false;
  bool found = false;
  std::string id;
};

struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;  ///< 0: no result
};

/// Where each request's line lies. A last line without its newline was cut short, and is no result.
class ExtentFinder {
 public:
  ExtentFinder(const std::string& path, const std::vector<Request>& requests)
      : path_(path), extents_(requests.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      index_of_id_.emplace(requests[i].id, i);
    }
  }

  std::vector<Extent> find() && {
    std::ifstream in(path_, std::ios::binary);
    if (!in) {
      throw IoError(fmt::format("cannot read back {}: {}", path_, std::strerror(errno)));
    }
    std::string text;
    std::uint64_t offset = 0;
    while (std::getline(in, text) && !in.eof()) {
      ++line_;
      place(text, Extent{offset, text.size() + 1});
      offset += text.size() + 1;
    }
    if (in.bad()) {
      throw IoError(fmt::format("cannot read back {}: {}", path_, std::strerror(errno)));
    }
    return std::move(extents_);
  }

 private:
  void place(const std::string& text, Extent extent) {
    IdReader reader;
    nlohmann::json::sax_parse(text, &reader);
    const auto found = index_of_id_.find(reader.id);
    if (!reader.found || found == index_of_id_.end()) {
      throw FormatError(
          fmt::format("{}:{}: no result of a request of this job; leave the file alone "
                      "while the job runs",
                      path_, line_));
    }
    auto& place = extents_[found->second];
    if (place.size != 0) {
      throw FormatError(
          fmt::format("{}:{}: a second result of one request; leave the file alone "
                      "while the job runs",
                      path_, line_));
    }
    place = extent;
  }

  const std::string& path_;
  std::unordered_map<std::string_view, std::size_t> index_of_id_;
  std::vector<Extent> extents_;
  std::int64_t line_ = 0;
};

void copy_lines(const File& from, const std::vector<Extent>& extents, const File& to) {
  constexpr std::size_t kFlushBytes = 1 << 20;
  std::vector<std::byte> buffer;
  std::uint64_t written = 0;
  const auto flush = [&] {
    to.write_at(buffer, written);
    written += buffer.size();
    buffer.clear();
  };
  for (const auto& extent : extents) {
    const auto start = buffer.size();
    buffer.resize(start + extent.size);
    from.read_at(std::span(buffer).subspan(start), extent.offset);
    if (buffer.size() >= kFlushBytes) {
      flush();
    }
  }
  flush();
}

}  // namespace

void write_ordered(const std::string& output_path, const std::vector<Request>& requests,
                   bool overwrite) {
  StagedFile staged(ordered_path(output_path), overwrite);
  const auto extents = ExtentFinder(output_path, requests).find();
  {
    const File from(output_path, File::Mode::read);
    const File to(staged.temporary_path(), File::Mode::create);
    copy_lines(from, extents, to);
  }
  staged.commit();
}

}  // namespace stagecoach::job
