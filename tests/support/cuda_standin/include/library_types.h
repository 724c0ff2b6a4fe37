#pragma once

enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2 };
using cudaDataType = cudaDataType_t;
