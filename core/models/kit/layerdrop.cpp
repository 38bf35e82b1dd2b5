#include "models/kit/layerdrop.h"

#include <string>

namespace oometer {

void read_layerdrop(ConfigReader& reader, const char* key, double usual) {
  if (reader.number(key, usual, 0, 1) == 0) return;
  std::string text = reader.pointer_to(key);
  text += ": training leaves layers out at random; the answer is of a step in which all of them run, which takes most.";
  reader.findings().assumptions.push_back(std::move(text));
}

}  // namespace oometer
