/* SPDX-License-Identifier: MIT
 * What readers and the writer of packed files share. */
#ifndef HR_MODEL_PACKED_INTERNAL_H
#define HR_MODEL_PACKED_INTERNAL_H

#include <headrow/headrow.h>

#define HR_PACKED_PREFIX "headrow.packed."
#define HR_PACKED_LAYOUT HR_PACKED_PREFIX "layout"         /* uint32: HR_PANEL_LAYOUT */
#define HR_PACKED_WEIGHTS HR_PACKED_PREFIX "weights"       /* string: one of hr_weights_names */
#define HR_PACKED_NAMES HR_PACKED_PREFIX "tensor_names"    /* of the tensors that were packed */
#define HR_PACKED_TYPES HR_PACKED_PREFIX "tensor_types"    /* as GGUF numbers them */
#define HR_PACKED_SHAPES HR_PACKED_PREFIX "tensor_shapes"  /* 4 each, outermost first, 0: no more */
/* Of a safetensors model: the files beside it, whole, and their names. */
#define HR_PACKED_FILE_NAMES HR_PACKED_PREFIX "file_names"
#define HR_PACKED_FILES HR_PACKED_PREFIX "files"

enum { HR_WEIGHTS_NAMES = HR_WEIGHTS_Q8_0 + 1 };
extern const char *const hr_weights_names[HR_WEIGHTS_NAMES];

#endif
