#pragma once

#include "device/device.hpp"

namespace stagecoach::device {

/// What every device asks of an operation's arguments, whatever it computes with. Each throws
/// InternalError naming what is wrong.
void check_linear(const LinearArgs& args);
void check_widen(const WidenArgs& args);
void check_embed(const EmbedArgs& args);
void check_attention(const AttentionArgs& args);
/// What has scores has a place for what is selected from them.
void check_selection(const AttentionArgs& args);
/// Parts of a sparse row's result need its selection.
void check_selected(const AttentionArgs& args);
void check_gather(const AttentionArgs& args);
/// Every page that a row sees is here, or its partial result is; not so where a row has to select.
void check_reach(const AttentionArgs& args);
void check_sample(const SampleArgs& args);
/// Of a row that is sampled from. Throws Error naming the row when its logits hold a NaN or
/// infinity, or no number: whatever were chosen then would be silently wrong.
void check_logits(std::int32_t row, bool has_nan, float largest);

}  // namespace stagecoach::device
