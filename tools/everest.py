"""EVEREST (arXiv 2211.10636), video autoencoders that drop redundant tokens: a PyTorch model of the paper, made of transformers' VideoMAE.

The choice of tokens follows `mcm_step` of the authors' code (sunilhoho/EVEREST, modeling_pretrain.py and modeling_finetune.py): what is not
known by its distance from the same patch one tubelet earlier is dropped before the encoder. In pre-training, of what is left, a part is
encoded and the rest is what the decoder makes. All else is transformers': attention, layers, where the labels are computed. The authors
compute labels in float32 before the model runs, and hold them. Classes have transformers' names, by which peft and accelerate find them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.videomae import modeling_videomae as videomae
from transformers.utils.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD


def kept_tokens(config: Any) -> tuple[int, int]:
    """Of a video: tokens that are encoded in pre-training, and those that are not redundant."""
    tokens = (config.image_size // config.patch_size) ** 2 * (config.num_frames // config.tubelet_size)
    return int((1 - getattr(config, "mask_ratio", 0.9)) * tokens), int((1 - config.motion_centric_masking_ratio) * tokens)


@dataclass
class Output(BaseModelOutput):
    input_mask: torch.Tensor | None = None
    target_mask: torch.Tensor | None = None


class VideoMAEEmbeddings(videomae.VideoMAEEmbeddings):
    pretrains = False

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        embeddings = self.patch_embeddings(pixel_values)
        input_mask, target_mask = self.choose(embeddings)
        embeddings = embeddings + self.position_embeddings.detach().type_as(embeddings).to(device=embeddings.device, copy=True)
        batch_size, _, num_channels = embeddings.shape
        embeddings = embeddings[~input_mask]
        embeddings = embeddings.reshape(batch_size, -1, num_channels)
        return embeddings, input_mask, target_mask

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """True: a token that is not encoded, and one that is not reconstructed."""
        batch, tokens, width = x.shape
        tubelets = self.config.num_frames // self.config.tubelet_size
        patch_embed_vectors = x.detach().clone().reshape(batch, tubelets, tokens // tubelets, width)
        distance = torch.norm(patch_embed_vectors[:, :-1] - patch_embed_vectors[:, 1:], p=2, dim=3)
        importance = torch.cat((distance[:, 0], distance.flatten(1)), dim=1)
        ids_sorted = torch.argsort(importance, dim=1, descending=True)
        num_input_tokens, num_compressed_tokens = kept_tokens(self.config)
        if self.pretrains:
            noise = torch.rand(batch, num_compressed_tokens, device=x.device)
            noise_id_shuffled = torch.argsort(noise, dim=1)
            ids_sorted[:, :num_compressed_tokens] = torch.gather(ids_sorted[:, :num_compressed_tokens], dim=1, index=noise_id_shuffled)
        ids_restore = torch.argsort(ids_sorted, dim=1)
        if not self.pretrains:
            num_input_tokens = num_compressed_tokens
        input_mask = torch.ones([batch, tokens], device=x.device)
        input_mask[:, :num_input_tokens] = 0
        if not self.pretrains:
            input_mask = torch.gather(input_mask, dim=1, index=ids_restore)
            return input_mask.to(torch.bool), None
        target_mask = torch.ones([batch, tokens], device=x.device)
        target_mask[:, num_input_tokens:num_compressed_tokens] = 0
        input_mask = torch.gather(input_mask, dim=1, index=ids_restore)
        target_mask = torch.gather(target_mask, dim=1, index=ids_restore)
        return input_mask.to(torch.bool), target_mask.to(torch.bool)


class VideoMAEModel(videomae.VideoMAEModel):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings.__class__ = VideoMAEEmbeddings

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> Output:
        embedding_output, input_mask, target_mask = self.embeddings(pixel_values)
        encoder_outputs = self.encoder(embedding_output)
        sequence_output = encoder_outputs.last_hidden_state
        if self.layernorm is not None:
            sequence_output = self.layernorm(sequence_output)
        return Output(last_hidden_state=sequence_output, input_mask=input_mask, target_mask=target_mask)


class VideoMAEForVideoClassification(videomae.VideoMAEForVideoClassification):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.videomae.__class__ = VideoMAEModel
        self.videomae.embeddings.__class__ = VideoMAEEmbeddings


class VideoMAEForPreTraining(videomae.VideoMAEForPreTraining):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.videomae.__class__ = VideoMAEModel
        self.videomae.embeddings.__class__ = VideoMAEEmbeddings
        self.videomae.embeddings.pretrains = True

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> videomae.VideoMAEForPreTrainingOutput:
        """transformers' forward, with the tokens to make in the place of all that are not encoded."""
        outputs = self.videomae(pixel_values)
        sequence_output = self.encoder_to_decoder(outputs.last_hidden_state)
        batch_size, _, num_channels = sequence_output.shape
        expanded_position_embeddings = self.position_embeddings.expand(batch_size, -1, -1).type_as(pixel_values)
        expanded_position_embeddings = expanded_position_embeddings.detach().to(device=pixel_values.device, copy=True)
        pos_emb_visible = expanded_position_embeddings[~outputs.input_mask].reshape(batch_size, -1, num_channels)
        pos_emb_mask = expanded_position_embeddings[~outputs.target_mask].reshape(batch_size, -1, num_channels)
        x_full = torch.cat([sequence_output + pos_emb_visible, self.mask_token + pos_emb_mask], dim=1)
        logits = self.decoder(x_full, pos_emb_mask.shape[1]).logits
        with torch.no_grad():
            frames = pixel_values
            if self.config.num_channels == 3:
                device, dtype = pixel_values.device, pixel_values.dtype
                mean = torch.as_tensor(IMAGENET_DEFAULT_MEAN).to(device=device, dtype=dtype)[None, None, :, None, None]
                std = torch.as_tensor(IMAGENET_DEFAULT_STD).to(device=device, dtype=dtype)[None, None, :, None, None]
                frames = pixel_values * std + mean
            batch_size, time, num_channels, height, width = frames.shape
            tubelet, patch = self.config.tubelet_size, self.config.patch_size
            frames = frames.view(batch_size, time // tubelet, tubelet, num_channels, height // patch, patch, width // patch, patch)
            frames = frames.permute(0, 1, 4, 6, 2, 5, 7, 3).contiguous()
            frames = frames.view(batch_size, -1, tubelet * patch**2, num_channels)
            videos_patch = frames.flatten(2)
            if self.config.norm_pix_loss:
                frames_norm = (frames - frames.mean(dim=-2, keepdim=True)) / (
                    frames.var(dim=-2, unbiased=True, keepdim=True).sqrt() + 1e-6
                )
                videos_patch = frames_norm.flatten(2)
            labels = videos_patch[~outputs.target_mask].reshape(batch_size, logits.shape[1], -1)
        loss = torch.nn.functional.mse_loss(logits, labels)
        return videomae.VideoMAEForPreTrainingOutput(loss=loss, logits=logits)
