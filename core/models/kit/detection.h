#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "models/data.h"
#include "models/model.h"
#include "nn/module.h"
#include "tensor/tensor_list.h"

/// Detectors of objects, as DETR is one: their labels, heads and loss (transformers 5.23,
/// loss/loss_for_object_detection.py).
namespace oometer {

class ConfigReader;

/// [height, width] that the processors of DETR and its kin make of COCO's usual image, 480 x 640.
inline constexpr std::pair<std::int64_t, std::int64_t> kUsualImage{800, 1066};
/// Images of any size, of so many pixels where the job says no other; with labels, the objects that these name in each:
/// as long as that the targets are, `DataConfig::target_length`.
void read_detection_images(ConfigReader& reader, bool has_labels, std::pair<std::int64_t, std::int64_t> usual,
                           DataConfig& data);
/// COCO's, on average.
inline constexpr std::int64_t kUsualObjects = 7;
/// The fields of the loss, which decide no memory.
void ignore_loss_weights(ConfigReader& reader);
/// Among the traits of a detector with labels.
void set_detection_traits(ModelTraits& traits);
double largest_tensor_of_detection(const DataConfig& data, std::int64_t queries, std::int64_t labels);

/// `class_labels` and `boxes` of each image, for ModelInputs::others.
TensorList make_detection_labels(Context& context, const DataConfig& data);

/// DetrMLPPredictionHead: linear layers with ReLU between them.
struct DetectionHead {
  DetectionHead() = default;
  DetectionHead(const Builder& builder, std::int64_t input_dim, std::int64_t hidden_dim, std::int64_t output_dim,
                std::int64_t num_layers);
  Tensor operator()(const Tensor& x) const;

  std::vector<Linear> layers;
  ModuleId module = 0;
};

/// What a detector predicts, and what its loss adds to the class's outputs.
struct Predictions {
  Tensor logits, boxes;
};
struct DetectionLoss {
  Tensor loss;
  TensorList loss_dict;
};

/// A frame's locals, as CPython lets them go: in the order in which they were bound.
void let_go(std::initializer_list<Tensor*> locals);

Tensor inverse_sigmoid(const Tensor& x);

/// Bounding boxes, as image_transforms.py and the loss have them: those of the last dimension.
Tensor center_to_corners_format(const Tensor& boxes);
/// Of each of the first boxes with each of the second; no one else holds either.
Tensor generalized_box_iou(Tensor boxes1, Tensor boxes2);

Tensor box_iou(const Tensor& boxes1, const Tensor& boxes2, Tensor& union_);

/// The same objects of all images. torch.cat of what each image's labels have; `offset` 0: class_labels, 1: boxes.
Tensor joined(const TensorList& labels, std::size_t offset);
/// torch.cat of those that found one of the predictions: that is known on the host.
Tensor joined_matches(const TensorList& labels, std::size_t offset, std::int64_t num_queries);
std::int64_t all_matched(const TensorList& labels, std::int64_t num_queries);

/// HungarianMatcher.forward behind its cost of classes, and its names until then, which are let go in the end.
void match_boxes(Tensor out_prob, Tensor out_bbox, Tensor target_ids, Tensor target_bbox, TensorList class_costs,
                 Tensor class_cost);
/// `-(x + 1e-8).log()`
Tensor negative_log(const Tensor& x);
/// ImageLoss.forward, before the losses: how many boxes there are.
void average_boxes(Context& context, bool of_all_ranks);
/// loss_boxes, of the predictions that were matched and of the boxes that they are to be: loss_bbox, loss_giou.
void loss_boxes(Tensor source_boxes, Tensor target_boxes, TensorList& losses);

/// How classes are scored: ForObjectDetectionLoss has a softmax with a class for no object, and
/// DeformableDetrForObjectDetectionLoss a sigmoid focal loss.
enum class ClassLoss : std::uint8_t { cross_entropy, focal };

/// ForObjectDetectionLoss. `intermediate`: those of the decoder's layers, stacked, where there is an auxiliary loss;
/// null: there is none.
DetectionLoss object_detection_loss(const Predictions& last, const TensorList& labels, std::int64_t num_labels,
                                    const Predictions& intermediate = {},
                                    ClassLoss class_loss = ClassLoss::cross_entropy);

}  // namespace oometer
