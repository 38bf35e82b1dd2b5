#include "models/language.h"

#include "config/reader.h"
#include "models/mistral/config.h"
#include "models/qwen2/config.h"
#include "models/qwen3/config.h"

namespace oometer {

LlamaConfig read_language_config(ConfigReader& reader) {
  using Read = LlamaConfig (*)(ConfigReader&);
  const Read read = reader.choice<Read>("model_type", read_llama_config,
                                        {{"llama", read_llama_config},
                                         {"mistral", read_mistral_config},
                                         {"qwen2", read_qwen2_config},
                                         {"qwen3", read_qwen3_config}});
  return read(reader);
}

}  // namespace oometer
