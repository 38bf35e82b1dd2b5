#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "nn/rows.h"
#include "runtime/expert_load.h"
#include "tensor/shape.h"
#include "trace/dtype.h"

namespace oometer {

/// An image, or the frames of a video, as its processor hands it on.
struct ImageShape {
  std::int64_t image_height = 0;  ///< pixels; 0: no images
  std::int64_t image_width = 0;
  std::int64_t tokens_per_image =
      0;                    ///< of the language model's sequence; 0: no images, or they are not merged into it
  std::int64_t tiles = 1;   ///< of each image: what the tower sees, where the processor cuts images
  std::int64_t grid_t = 0;  ///< of an image cut into patches before the model (Qwen-VL): frames, rows, columns; 0: none
  std::int64_t grid_h = 0;
  std::int64_t grid_w = 0;

  std::int64_t patches() const { return checked_product(grid_t, grid_h * grid_w); }  ///< of one image
  bool operator==(const ImageShape&) const = default;
};

/// Of a video, before its processor samples frames of it and resizes them.
struct Video {
  double seconds = 0, fps = 2;  ///< frames that are sampled of a second
  std::int64_t height = 0, width = 0;
  std::optional<std::int64_t> min_pixels{}, max_pixels{};  ///< in place of the processor's own
  bool operator==(const Video&) const = default;
};

/// One micro-batch as one replica sees it. Every field is resolved: the model's defaults are filled in. Its own shape
/// is that of all images, or of the largest.
struct DataConfig : ImageShape {
  std::int64_t micro_batch_size = 1;  ///< samples per forward
  std::int64_t sequence_length = 0;   ///< tokens of the language (or text) model, image tokens included; 0: no text
  std::int64_t target_length = 0;  ///< tokens of a decoder beside an encoder, whose labels they are; 0: there is none
  std::int64_t images_per_sample = 0;       ///< 0: the model takes no images, or the samples are text only
  std::vector<ImageShape> sample_images{};  ///< of each sample, where they differ; empty: all are as above
  std::optional<Video> video{};             ///< each of its images is this
  std::int64_t audios_per_sample = 0;       ///< 0: the model hears nothing
  double audio_seconds = 0;                 ///< of each, as it was recorded; 0: no audio
  std::int64_t tokens_per_audio = 0;        ///< of the language model's sequence; 0: they are not merged into it
  ExpertLoad routing{};
  Rows rows{};
  std::int64_t scored = 0;  ///< labels that are not -100, after the shift; counted where somebody asks

  /// Of each sample, where a trainer asks for them: tokens of its prompt and of its answer, before they are cut.
  struct Turns {
    std::int64_t prompt = 0, answer = 0;
    bool operator==(const Turns&) const = default;
  };
  std::vector<Turns> turns{};

  /// Of pixel_values and of audio in the batch: float32, as processors give them; none: the weights' own.
  std::optional<DType> pixel_dtype{};

  std::int64_t images() const { return micro_batch_size * images_per_sample; }
  std::int64_t audios() const { return micro_batch_size * audios_per_sample; }
  /// One of the micro-batch's images, sample by sample.
  const ImageShape& image(std::int64_t i) const {
    return sample_images.empty() ? *this : sample_images[static_cast<std::size_t>(i) % sample_images.size()];
  }
  /// The sum over a sample's images of what each has.
  template <class Of>
  std::int64_t sum_of_sample(Of of) const {
    if (sample_images.empty()) return checked_product(images_per_sample, of(*this));
    std::int64_t sum = 0;
    for (const ImageShape& one : sample_images) sum += of(one);
    return sum;
  }
  std::int64_t tokens_of_images() const {  ///< of a sample
    return sum_of_sample([](const ImageShape& one) { return one.tokens_per_image; });
  }
  std::int64_t all_tiles() const {
    return micro_batch_size * sum_of_sample([](const ImageShape& one) { return one.tiles; });
  }
  std::int64_t all_patches() const {
    return checked_product(micro_batch_size, sum_of_sample([](const ImageShape& one) { return one.patches(); }));
  }
  /// What each of the micro-batch's images has.
  template <class Of>
  std::vector<std::int64_t> of_each_image(Of of) const {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < images(); ++i) all.push_back(of(image(i)));
    return all;
  }
  std::vector<std::int64_t> tokens_of_each_image() const {
    return of_each_image([](const ImageShape& one) { return one.tokens_per_image; });
  }

  bool operator==(const DataConfig&) const = default;
};

}  // namespace oometer
