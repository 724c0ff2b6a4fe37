#pragma once

namespace cuda_standin {

/// Of the block that runs on this thread, 16-byte aligned; poison when the block begins.
void* dynamic_shared_bytes();

}  // namespace cuda_standin
