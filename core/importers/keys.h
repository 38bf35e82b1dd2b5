#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "importers/ledger.h"

namespace oometer::importers {

/// A key of a trainer that decides memory.
struct Key {
  const char* name;
  const char* fallback;  ///< the trainer's default as JSON; "" where there is none
  const char* source;    ///< where that stands: file and class
  const char* pointer;   ///< where it stands in the job, as it is; "" where the importer's code decides it
};

/// A key that may change memory and that the job has no words for.
struct Gap {
  const char* name;
  const char* off;  ///< the value, as JSON, that changes nothing, beside null, false and empty ones; "" for none
  Effect effect;
  const char* text;  ///< what it could change
};

/// A key's name in earlier versions of a trainer.
struct Renamed {
  const char *older, *newer;
  const char* since;  ///< the version that has the newer name
};

/// All keys of a trainer.
struct Table {
  const char* project;  ///< with its version: "llamafactory 0.9.5"
  std::span<const Key> keys;
  std::span<const Gap> gaps;
  std::string_view harmless;                            ///< keys that change no memory, with blanks between
  bool (*is_harmless)(std::string_view key) = nullptr;  ///< and those that another table has
  std::span<const Renamed> renamed = {};
};

/// The keys of one file, each of which is accounted for. Where something is wrong the first refusal is kept, and
/// reading goes on with defaults.
class Keys {
 public:
  Keys(Ledger& ledger, std::string file, nlohmann::json object);

  /// What another file says too (a command line beside a YAML) goes over what was said.
  void over(const std::string& file, const nlohmann::json& object);

  /// What is known of a trainer; a later table goes before an earlier one. A key that the file calls by its name in
  /// earlier versions is read as the newer one, and listed as it is written.
  void know(const Table& table);

  Ledger& ledger() { return ledger_; }
  const std::string& file() const { return file_; }

  /// The file that says a key.
  const std::string& file_of(std::string_view name) const;

  /// The file says it, and not null.
  bool has(const char* name) const;
  /// What the file says, else the trainer's default, else null. Marks it as read.
  nlohmann::json value(const char* name);
  bool truth(const char* name);
  std::string text(const char* name);
  std::int64_t integer(const char* name);
  /// The same within what sizes can be, 0 to 2^24: safe to multiply.
  std::int64_t size(const char* name);
  /// A list of names; a text with commas is one.
  std::vector<std::string> names(const char* name);

  /// Puts a value into the job that comes from this key.
  void take(const char* name, const std::string& pointer, nlohmann::json value);
  /// As it is, where its row says; a default of null is not put.
  void take(const char* name);
  /// Only if the file says it.
  void take_given(const char* name, const std::string& pointer);
  /// A key that decides what stands at a pointer, without a value of its own there.
  void note(const char* name, const std::string& pointer);
  void leave_out(const char* name, Effect effect, const std::string& text, std::optional<std::int64_t> bytes = {});
  void ignore(const char* name);
  void refuse(const char* name, const std::string& message);
  /// Marks a key as read: it is listed as without effect, unless another list has it.
  void mark(const char* name) { read_.emplace_back(name); }

  /// Whether a key is known to change no memory.
  bool is_harmless(std::string_view name) const;

  /// Call last: gaps, what changes no memory, and keys that no table knows, each with the nearest that one does.
  void finish();

 private:
  struct Row {
    const Key* key;
    const Table* table;
  };
  Row find(std::string_view name) const;
  nlohmann::json fallback_of(std::string_view name) const;
  std::string source_of(std::string_view name) const;
  bool is_read(std::string_view name) const;
  /// The name that the file has for a key.
  std::string written(const std::string& name) const;
  /// What it is called now, where the file has its older name; else "".
  std::string since(const std::string& name) const;
  /// A template's place or a variable ("{{ size }}", "${SIZE}") in the place of a value: it is asked for, and nobody
  /// has said the key.
  bool asks_for(const char* name);
  bool is_listed(std::string_view name) const;

  Ledger& ledger_;
  std::string file_;
  nlohmann::json object_;
  std::map<std::string, std::string, std::less<>> origins_;   ///< of keys that another file than the first one says
  std::map<std::string, const Renamed*, std::less<>> older_;  ///< by the newer name
  std::vector<const Table*> tables_;
  std::vector<std::string> read_;
};

/// A member of an object; null where there is none, or no object.
nlohmann::json member(const nlohmann::json& tree, const char* key);
/// The same as text; "" where it is none.
std::string member_text(const nlohmann::json& tree, const char* key);

/// What a word of a command line or of YAML says: null, a truth, a number or a text.
nlohmann::json scalar_of(const std::string& word);

/// Whether a word stands among words with blanks between.
bool is_word_of(std::string_view word, std::string_view words);

/// What a name is made of, in Python as in a shell: letters, digits and "_".
bool is_name_letter(char letter);

/// "a, b" -> {"a", "b"}
std::vector<std::string> split_words(std::string_view text, std::string_view between);

}  // namespace oometer::importers
