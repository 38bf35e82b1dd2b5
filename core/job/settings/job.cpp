#include "job/settings/choices.h"
#include "job/settings/sections.h"

namespace oometer::settings {

namespace {

constexpr Setting kJobRows[] = {
    {.key = "version", .takes = any(kInteger, {1, 1}), .words = "Version of this format", .otherwise = "1"},
    {.key = "model", .takes = any(0) | model_section, .words = "What is trained or generates"},
    {.key = "task",
     .takes = one_of<kTasks, &Job::task>(),
     .words = "What runs: training steps, or generate() (forward alone, of a model that does not generate)",
     .option = "--task",
     .label = "Task",
     .link = "task"},
    {.key = "data", .takes = any(0) | data_section, .words = "One micro-batch of one replica"},
    {.key = "training", .takes = any(0) | training_section, .words = "The training step"},
    {.key = "inference",
     .takes = any(0) | inference_section,
     .words = "Prompts and answers",
     .applies = {{.setting = "/task", .is = "inference"}}},
    {.key = "parallel", .takes = any(0) | parallel_section, .words = "How the job is spread over GPUs"},
    {.key = "gpu", .takes = any(0) | gpu_section, .words = "The GPU"},
    {.key = "host", .takes = any(0) | host_section, .words = "The machine that the GPUs are in"},
    {.key = "runtime", .takes = any(0) | runtime_section, .words = "Whose code runs, in which versions"},
    {.key = "calibration", .takes = any(0) | calibration_section, .words = "What was measured", .applies = {kTrains}},
    {.key = "cost", .takes = any(0) | cost_section, .words = "What a GPU costs, and how far the training goes"},
};

constexpr Setting kModelRows[] = {
    {.key = "preset",
     .takes = any(kText),
     .words = "A model of `oometer presets`",
     .option = "--preset",
     .label = "Model",
     .link = "model"},
    {.key = "config",
     .takes = any(kObject),
     .words = "A Hugging Face config.json; with a preset it overrides its fields, nested. architectures[0] selects the "
              "class where a model_type has several",
     .label = "Own model",
     .link = "config"},
    {.key = "graph",
     .takes = any(kObject),
     .words = "A file of tools/export_graph.py: any torch.nn.Module by its operators; instead of preset and config",
     .link = "config"},
    {.key = "name", .takes = any(kText), .words = "A name for people"},
    {.key = "reference",
     .takes = one_of<kReferences, &ModelChoice::reference>(),
     .words = "Of a preference loop: what the policy is compared with"},
    {.key = "reference_dtype",
     .takes = one_of<kFloats>() | kNull,
     .words = "The type of the weights of a reference that is a model of its own; null: the policy's",
     .otherwise = "null"},
};

constexpr Range kPixels{1, 65'536};
constexpr unsigned kCount = kInteger | kNull;

constexpr Remedy kMultiples[] = {
    {"64", Price::time, 1, "Pad to a multiple of 64",
     "slower: a little more padding; micro-batches have fewer different lengths (pad_to_multiple_of)"},
};

constexpr Condition kHasLengths{.setting = "/data/lengths", .is_not = "null"};

constexpr Setting kDataRows[] = {
    {.key = "evaluation",
     .takes = any(kObject),
     .words =
         "An evaluation of a trainer: {\"lengths\": {\"batches\": [[1024, 1024], ...]}}, or {}: training's lengths",
     .label = "Evaluation batches",
     .link = "evalbatches",
     .applies = {{.setting = "/training/loop/args/eval_strategy", .is_not = "no"}}},
    {.key = "micro_batch_size",
     .takes = in<&DataConfig::micro_batch_size>(Range{1, 1 << 20}),
     .words = "Samples per forward of one replica; with inference, prompts that run at once",
     .unit = "samples",
     .option = "--micro-batch-size",
     .label = "Micro-batch",
     .link = "mbs"},
    {.key = "sequence_length",
     .takes = any(kCount, {1, 1 << 24}),
     .words =
         "Tokens that the language model sees in a sample, image tokens included; with inference, the first prompt; "
         "null: the model's usual length",
     .unit = "tokens",
     .option = "--sequence-length",
     .label = "Sequence length",
     .link = "seq",
     .otherwise = "null"},
    {.key = "images_per_sample",
     .takes = any(kCount, {0, 1 << 16}),
     .words = "Images in each sample; null: 1 for a model that takes images",
     .unit = "images",
     .option = "--images-per-sample",
     .label = "Images per sample",
     .link = "images",
     .otherwise = "null"},
    {.key = "image_size",
     .takes = list_of(2, kNull, kPixels),
     .words =
         "[height, width] of an image before the processor cuts or resizes it; null: the config's own size, and 672 x "
         "448 for Qwen-VL",
     .unit = "pixels",
     .option = "--image-size",
     .label = "Image size",
     .link = "height width",
     .otherwise = "null"},
    {.key = "image_sizes",
     .takes = any(kList | kNull),
     .words = "[height, width] of each image of a sample, where they differ: [[672, 448], [224, 224]]; "
              "images_per_sample is their number then",
     .unit = "pixels",
     .label = "Image sizes",
     .link = "imagesizes",
     .otherwise = "null",
     .schema =
         R"({"type": ["array", "null"], "items": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65536}, "minItems": 2, "maxItems": 2}})"},
    {.key = "objects_per_image",
     .takes = any(kCount, {1, 65'536}),
     .words = "Objects that the labels name in each image, of models that detect them; null: 7, as in COCO",
     .unit = "objects",
     .option = "--objects-per-image",
     .label = "Objects per image",
     .link = "objects",
     .otherwise = "null"},
    {.key = "tiles",
     .takes = any(kCount, {1, 4096}),
     .words =
         "Tiles of each image, with the whole image scaled down as one of them, of models whose processor cuts images; "
         "null: as the processor cuts an image of image_size",
     .unit = "tiles",
     .option = "--tiles",
     .label = "Image splitting",
     .link = "tiles",
     .offers = "null 1 5 10 13 17",
     .otherwise = "null"},
    {.key = "grid_thw",
     .takes = list_of(3, kNull, kPixels),
     .words = "Grid [t, h, w] of patches of Qwen-VL, instead of image_size and frames",
     .unit = "patches",
     .label = "Patch grid",
     .link = "grid",
     .otherwise = "null"},
    {.key = "frames",
     .takes = any(kCount, {1, 1 << 16}),
     .words = "Frames of each video of Qwen-VL, LLaVA-NeXT-Video and LLaVA-OneVision; null: 1, images",
     .unit = "frames",
     .option = "--frames",
     .label = "Frames",
     .link = "frames",
     .otherwise = "null"},
    {.key = "video",
     .takes = any(kObject | kNull),
     .words = "Each image of a sample is a video of 30 frames a second, of which `fps` (2) a second are sampled: "
              "{\"seconds\": 8, \"fps\": 2, \"size\": [360, 640]}; min_pixels and max_pixels are its processor's then",
     .label = "Video",
     .link = "video",
     .otherwise = "null"},
    {.key = "min_pixels",
     .takes = any(kCount, positive),
     .words = "Smaller images are enlarged to this many pixels (Qwen-VL); null: 3,136, as published",
     .unit = "pixels",
     .label = "Fewest pixels",
     .link = "minpixels",
     .otherwise = "null"},
    {.key = "max_pixels",
     .takes = any(kCount, positive),
     .words = "Larger images are reduced to this many pixels (Qwen-VL); null: 12,845,056, as published",
     .unit = "pixels",
     .label = "Most pixels",
     .link = "maxpixels",
     .otherwise = "null"},
    {.key = "audio_seconds",
     .takes = any(kNumber | kNull, {0, 86'400}),
     .words = "Length of each audio, of models that hear; null: 30 s, or the model's usual length",
     .unit = "s",
     .option = "--audio-seconds",
     .label = "Audio",
     .link = "audio",
     .otherwise = "null"},
    {.key = "audios_per_sample",
     .takes = any(kCount, {0, 1 << 16}),
     .words = "Audios in each sample; null: 1 for a model that hears",
     .unit = "audios",
     .option = "--audios-per-sample",
     .label = "Audios per sample",
     .link = "audios",
     .otherwise = "null"},
    {.key = "routing",
     .takes = any(kText | kList),
     .words =
         "How a router spreads tokens over experts, which decides memory where these run one after another "
         "(runtime.experts: eager): balanced, worst (all tokens go to the same experts), or each expert's tokens of "
         "a micro-batch",
     .otherwise = R"("balanced")",
     .schema = R"({"type": ["string", "array"]})"},
    {.key = "lengths",
     .takes = any(kObject | kNull),
     .words =
         "Tokens of each sample, image tokens included: {\"batches\": [[1024, 700], [512, 512]]} says them for each "
         "micro-batch, {\"uniform\": [a, b]}, {\"histogram\": [[length, count], ...]} and {\"quantiles\": [[0, 20], "
         "[0.5, 300], [1, 4096]]} how they are distributed (with a seed of their order, and \"grouped\": true where "
         "LengthGroupedSampler sorts them). Batches are padded, and come with an attention_mask; null: "
         "all samples are full, without a mask",
     .label = "Sample lengths",
     .link = "lengths shortest longest histogram",
     .applies = {kTrains},
     .otherwise = "null"},
    {.key = "packed",
     .takes = one_of<kPackings>() | kList | kNull,
     .words = "Several documents in a row, whose position_ids begin anew with each: rows as lists of their documents' "
              "tokens, [[400, 600, 24], ...], or how TRL packs samples of `lengths` into rows of sequence_length",
     .label = "Packing",
     .link = "packed",
     .applies = {kTrains, kHasLengths},
     .otherwise = "null",
     .schema = R"({"type": ["string", "array", "null"]})"},
    {.key = "steps",
     .takes = any(kCount, {1, 1000}),
     .words = "Optimizer steps that are run with samples of `lengths` or `packed`; null: one pass over what they list, "
              "at least 2, and 8 of a distribution",
     .unit = "steps",
     .option = "--steps",
     .label = "Steps",
     .link = "steps",
     .applies = {kTrains, kHasLengths},
     .otherwise = "null"},
    {.key = "padding",
     .takes = one_of<kPaddings>() | kInteger,
     .words = "To what samples of `lengths` are padded: the longest of the micro-batch, sequence_length, or a multiple "
              "of so many tokens (pad_to_multiple_of)",
     .unit = "tokens",
     .option = "--padding",
     .label = "Padding",
     .link = "padding",
     .applies = {kTrains, kHasLengths},
     .otherwise = R"("longest")",
     .schema = R"({"type": ["string", "integer"]})",
     .remedies = kMultiples},
    {.key = "padding_side",
     .takes = one_of<kSides>(),
     .words = "Where padding is put",
     .option = "--padding-side",
     .label = "Padding side",
     .link = "padside",
     .applies = {kTrains, kHasLengths},
     .otherwise = R"("right")"},
    {.key = "scored",
     .takes = one_of<kScored>() | kObject,
     .words = "Which labels are not -100: all, completion, {\"tokens\": n} or {\"fraction\": x} of each sample",
     .label = "Scored tokens",
     .link = "scored",
     .applies = {kTrains},
     .otherwise = R"("all")",
     .schema = R"({"type": ["string", "object"]})"},
    {.key = "target_length",
     .takes = any(kCount, positive),
     .words =
         "Tokens of the decoder of T5, BART and their kin, whose labels they are; null: as many as sequence_length",
     .unit = "tokens",
     .option = "--target-length",
     .label = "Target length",
     .link = "targetlength",
     .otherwise = "null"},
};

constexpr Setting kGpuRows[] = {
    {.key = "name",
     .takes = any(kText),
     .words = "A GPU of `oometer presets`",
     .option = "--gpu",
     .label = "GPU",
     .link = "gpu",
     .otherwise = R"("h100-80gb")"},
    {.key = "usable_bytes",
     .takes = any(kInteger, {1 << 20, std::int64_t{1} << 44}),
     .words = "What the allocator may use, instead of a name",
     .unit = "bytes",
     .option = "--usable-bytes",
     .label = "Usable memory",
     .link = "gpugib"},
    {.key = "compute_capability",
     .takes = any(kText),
     .words = "Compute capability of a GPU that usable_bytes describes, which decides the kernels that run",
     .option = "--compute-capability",
     .label = "Compute capability",
     .link = "capability",
     .offers = "12.0 10.0 9.0 8.9 8.6 8.0 7.5 7.0 6.0",
     .applies = {{.setting = "/gpu/usable_bytes", .is_not = "null"}},
     .otherwise = R"("9.0")",
     .schema = R"({"type": "string", "pattern": "^\\d+\\.\\d$"})"},
    {.key = "count",
     .takes = any(kInteger | kNull, {1, 1 << 16}),
     .words = "GPUs of the job, which must be the product of the degrees of parallelism",
     .unit = "GPUs",
     .link = "gpus",
     .otherwise = "null"},
};

constexpr std::int64_t kLeastHost = std::int64_t{1} << 30, kMostHost = std::int64_t{1} << 50;

constexpr Setting kHostRows[] = {
    {.key = "memory",
     .takes = any(kInteger | kText | kNull, {kLeastHost, kMostHost}),
     .words = "Memory of one machine, in bytes or as text (512GiB, 1.5TB): the report then says whether the job's "
              "processes fit in it while they load, train and resume; null: what they need, without a verdict",
     .unit = "bytes",
     .option = "--host-memory",
     .label = "Host memory",
     .link = "hostmem",
     .otherwise = "null"},
    {.key = "gpus",
     .takes = in<&HostConfig::gpus>(Range{1, 1 << 16}),
     .words = "GPUs of one machine, each with a process",
     .unit = "GPUs",
     .option = "--gpus-per-host",
     .label = "GPUs of a machine",
     .link = "pergpus"},
    {.key = "data_workers",
     .takes = in<&HostConfig::data_workers>(Range{0, 1 << 12}),
     .words = "Processes that load data, of each that trains (dataloader_num_workers)",
     .unit = "processes",
     .option = "--data-workers",
     .label = "Data workers",
     .link = "workers"},
    {.key = "checkpoint_dtype",
     .takes = one_of<kFloats, &HostConfig::checkpoint_dtype>(),
     .words = "Type of the weights in the safetensors files that from_pretrained reads"},
};

constexpr Remedy kExpandable[] = {
    {"true", Price::nothing, 1, "Expandable segments", "no cost: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
};

constexpr Setting kRuntimeRows[] = {
    {.key = "framework",
     .takes = one_of<kFrameworks, &Runtime::framework>(),
     .words = "Whose model code runs",
     .option = "--framework",
     .label = "Framework",
     .link = "framework",
     .applies = {kTrains}},
    {.key = "torch",
     .takes = in<&Runtime::torch>(known_torch),
     .words = "Version of PyTorch",
     .option = "--torch",
     .label = "PyTorch",
     .link = "torch",
     .offers = "2.15 2.14 2.13 2.12 2.11 2.10 2.9 2.8 2.7 2.6 2.5 2.4 2.3 2.2 2.1 2.0"},
    {.key = "transformers",
     .takes = in<&Runtime::transformers>(known_transformers),
     .words = "Version of transformers",
     .option = "--transformers",
     .label = "transformers",
     .link = "transformers",
     .offers = "5.23 4.57.1 4.51.3 4.48.3 4.46.3 4.44.2 4.40.2 4.37.2",
     .applies = {kTrains}},
    {.key = "deepspeed",
     .takes = in<&Runtime::deepspeed>(known_deepspeed),
     .words = "Version of DeepSpeed",
     .option = "--deepspeed",
     .label = "DeepSpeed",
     .link = "deepspeed",
     .offers = "0.19.8 0.14.4 0.12.6",
     .applies = {kTrains}},
    {.key = "peft",
     .takes = in<&Runtime::peft>(known_peft),
     .words = "Version of PEFT",
     .option = "--peft",
     .label = "PEFT",
     .link = "peft",
     .offers = "0.21.2 0.19.1 0.17.1 0.14.0 0.12.0 0.10.0",
     .applies = {kTrains}},
    {.key = "trl",
     .takes = in<&Runtime::trl>(known_trl),
     .words = "Version of TRL, whose SFTTrainer is known from 0.29 on, its other trainers as 1.16 has them",
     .option = "--trl",
     .applies = {kTrains}},
    {.key = "cudnn",
     .takes = in<&Runtime::cudnn>(),
     .words = "cuDNN is available, which has a workspace of its own for convolutions",
     .option = "--cudnn",
     .label = "cuDNN",
     .link = "cudnn"},
    {.key = "expandable_segments",
     .takes = in<&Runtime::expandable_segments>(),
     .words =
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: segments of the allocator can grow, so that less is lost "
         "to fragmentation",
     .option = "--expandable-segments",
     .label = "Expandable segments",
     .link = "segments",
     .remedies = kExpandable},
    {.key = "experts",
     .takes = one_of<kExperts, &Runtime::experts>(),
     .words = "How transformers runs mixture-of-experts layers"},
    {.key = "kernels",
     .takes = one_of<kKernels, &Runtime::kernels>() | kernels_section,
     .words = "What runs linear attention, Mamba and causal convolutions: the model's own PyTorch code, or the "
              "packages that transformers calls where they are installed",
     .option = "--kernels",
     .label = "Kernels",
     .link = "kernels"},
};

constexpr Setting kKernelsRows[] = {
    {.key = "linear_attention",
     .takes = one_of<kOperationKernels>(),
     .words = "Delta rules: by flash-linear-attention (fla 0.6)",
     .otherwise = "\"torch\""},
    {.key = "mamba",
     .takes = one_of<kOperationKernels>(),
     .words = "State spaces: by mamba_ssm 2.3",
     .otherwise = "\"torch\""},
    {.key = "causal_conv1d",
     .takes = one_of<kOperationKernels>(),
     .words = "Causal convolutions: by causal_conv1d 1.7",
     .otherwise = "\"torch\""},
};

constexpr Setting kCalibrationRows[] = {
    {.key = "reserved",
     .takes = in<&Calibration::reserved>(0.5, 2),
     .words = "Peak reserved as measured, divided by peak reserved as simulated",
     .link = "measured"},
    {.key = "outside_allocator",
     .takes = in<&Calibration::outside_allocator>(Range{0, std::int64_t{64} << 30}),
     .words = "Bytes in use on the GPU beside what PyTorch reserved; null: the tables' figure",
     .unit = "bytes",
     .link = "measured"},
};

constexpr double kMostWatts = 10'000, kMostPrice = 1'000'000;
constexpr std::int64_t kMostTokens = 1'000'000'000'000'000;

constexpr Setting kCostRows[] = {
    {.key = "watts",
     .takes = in<&CostConfig::watts>(1, kMostWatts),
     .words = "Power of one GPU, as the job draws it (nvidia-smi shows it): the report then has the energy of a step",
     .unit = "W",
     .option = "--watts",
     .label = "Power of a GPU",
     .link = "watts"},
    {.key = "price_per_hour",
     .takes = in<&CostConfig::price_per_hour>(0, kMostPrice),
     .words = "Price of one GPU for an hour, in any currency: the report then has the price of a step",
     .option = "--price-per-hour",
     .label = "Price of a GPU-hour",
     .link = "price"},
    {.key = "tokens",
     .takes = in<&CostConfig::tokens>(Range{1, kMostTokens}),
     .words = "Tokens that the whole training takes, padding too: the report then has its days, energy and price",
     .unit = "tokens",
     .option = "--tokens",
     .label = "Tokens to train on",
     .link = "tokens",
     .applies = {kTrains}},
};

}  // namespace

constexpr SectionOf<Job> job_section{{"", fields<Job, kJobRows>}};
constexpr SectionOf<ModelChoice> model_section{{"/model", fields<ModelChoice, kModelRows>}};
constexpr SectionOf<DataConfig> data_section{{"/data", fields<DataConfig, kDataRows>, remedies<kDataRows>}};
constexpr SectionOf<Gpu> gpu_section{{"/gpu", fields<Gpu, kGpuRows>}};
constexpr SectionOf<HostConfig> host_section{{"/host", fields<HostConfig, kHostRows>}};
constexpr SectionOf<Runtime> runtime_section{{"/runtime", fields<Runtime, kRuntimeRows>, remedies<kRuntimeRows>}};
constexpr SectionOf<Kernels> kernels_section{{"/runtime/kernels", fields<Kernels, kKernelsRows>}};
constexpr SectionOf<Calibration> calibration_section{{"/calibration", fields<Calibration, kCalibrationRows>}};
constexpr SectionOf<CostConfig> cost_section{{"/cost", fields<CostConfig, kCostRows>}};

constexpr SectionWords job_words{job_section, "What a person asks oometer about: one training run, or one conversation",
                                 kJobRows, defaults_of<Job>};
constexpr SectionWords model_words{
    model_section, "A preset, a Hugging Face config.json, a preset with some fields overridden, or a graph",
    kModelRows};
constexpr SectionWords data_words{data_section, "One micro-batch, as one replica sees it", kDataRows,
                                  defaults_of<DataConfig>};
constexpr SectionWords gpu_words{gpu_section, "A GPU of the catalogue, or what the allocator may use", kGpuRows};
constexpr SectionWords host_words{host_section, "The machine that the GPUs are in, and what its memory holds",
                                  kHostRows, defaults_of<HostConfig>};
constexpr SectionWords runtime_words{runtime_section, "Whose code runs, in which versions", kRuntimeRows,
                                     defaults_of<Runtime>};
constexpr SectionWords kernels_words{kernels_section, "Who runs which operation, each apart", kKernelsRows};
constexpr SectionWords calibration_words{
    calibration_section,
    "What a measurement of a run says, for jobs like it; total, interval and verdict "
    "of the report use it",
    kCalibrationRows, defaults_of<Calibration>};
constexpr SectionWords cost_words{cost_section, "What a GPU costs, for the energy and the price of a job's time",
                                  kCostRows, defaults_of<CostConfig>};

}  // namespace oometer::settings
