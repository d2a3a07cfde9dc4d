/* SPDX-License-Identifier: MIT
 * Templates by name, for files that bring none: the ways to mark turns that
 * models were trained with. Where a format has no place for a system text, it
 * goes before the first user's. */
#include "template/template.h"

/* The system text, if any, and the other messages. */
#define SPLIT_SYSTEM                                                                  \
  "{%- set system = '' -%}{%- set turns = messages -%}"                               \
  "{%- if messages and messages[0]['role'] == 'system' -%}"                           \
  "{%- set system = messages[0]['content'] -%}{%- set turns = messages[1:] -%}{%- endif -%}"

static const hr_named_template templates[] = {
    {.name = "chatml",
     .turn_end = "<|im_end|>",
     .source = "{%- for m in messages -%}"
               "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
               "{%- endfor -%}"
               "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"},
    {.name = "llama2",
     .source = SPLIT_SYSTEM
               "{%- for m in turns -%}"
               "{%- if m['role'] == 'user' -%}{{ bos_token + '[INST] ' }}"
               "{%- if loop.first and system -%}"
               "{{ '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' }}{%- endif -%}"
               "{{ m['content'].strip() + ' [/INST]' }}"
               "{%- else -%}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{%- endif -%}"
               "{%- endfor -%}"},
    {.name = "llama3",
     .turn_end = "<|eot_id|>",
     .source = "{{- bos_token -}}{%- for m in messages -%}"
               "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}"
               "{{- m['content'] | trim + '<|eot_id|>' }}{%- endfor -%}"
               "{%- if add_generation_prompt -%}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"},
    {.name = "mistral",
     .source = SPLIT_SYSTEM
               "{{- bos_token -}}{%- for m in turns -%}"
               "{%- if m['role'] == 'user' -%}{{ '[INST] ' }}"
               "{%- if loop.first and system -%}{{ system + '\\n\\n' }}{%- endif -%}"
               "{{ m['content'] + ' [/INST]' }}"
               "{%- else -%}{{ ' ' + m['content'] | trim + eos_token }}{%- endif -%}"
               "{%- endfor -%}"},
    {.name = "gemma",
     .turn_end = "<end_of_turn>",
     .source = SPLIT_SYSTEM
               "{{- bos_token -}}{%- for m in turns -%}"
               "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) }}"
               "{{- '\\n' }}{%- if loop.first and system -%}{{ system | trim + '\\n\\n' }}"
               "{%- endif -%}{{ m['content'] | trim + '<end_of_turn>\\n' }}{%- endfor -%}"
               "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"},
    {.name = "phi3",
     .turn_end = "<|end|>",
     .source = "{%- for m in messages -%}"
               "{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{%- endfor -%}"
               "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"},
    {.name = "zephyr",
     .source = "{%- for m in messages -%}"
               "{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token + '\\n' }}"
               "{%- endfor -%}"
               "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"},
    {.name = "deepseek",
     .source = "{{- bos_token -}}{%- for m in messages -%}"
               "{%- if m['role'] == 'user' -%}{{ 'User: ' + m['content'] + '\\n\\n' }}"
               "{%- elif m['role'] == 'assistant' -%}"
               "{{ 'Assistant: ' + m['content'] + eos_token }}"
               "{%- else -%}{{ m['content'] + '\\n\\n' }}{%- endif -%}{%- endfor -%}"
               "{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}"},
    {.name = "vicuna",
     .source = SPLIT_SYSTEM
               "{{- bos_token -}}{%- if system -%}{{ system + ' ' }}{%- endif -%}"
               "{%- for m in turns -%}"
               "{%- if m['role'] == 'user' -%}{{ 'USER: ' + m['content'] + ' ' }}"
               "{%- else -%}{{ 'ASSISTANT: ' + m['content'] + eos_token }}{%- endif -%}"
               "{%- endfor -%}"
               "{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}"},
    {.name = "alpaca",
     .source = SPLIT_SYSTEM
               "{{- bos_token -}}{%- if system -%}{{ system + '\\n\\n' }}{%- endif -%}"
               "{%- for m in turns -%}"
               "{%- if m['role'] == 'user' -%}"
               "{{ '### Instruction:\\n' + m['content'] + '\\n\\n' }}"
               "{%- else -%}{{ '### Response:\\n' + m['content'] + eos_token + '\\n\\n' }}"
               "{%- endif -%}{%- endfor -%}"
               "{%- if add_generation_prompt -%}{{ '### Response:\\n' }}{%- endif -%}"},
};

const hr_named_template *hr_named_template_at(size_t index) {
  return index < sizeof templates / sizeof *templates ? &templates[index] : NULL;
}
