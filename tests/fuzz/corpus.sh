#!/bin/sh
# SPDX-License-Identifier: MIT
# What fuzz targets begin with: made from tests/fixtures, tests/fuzz/corpus/TARGET, and what
# once ended a target, tests/fuzz/found/TARGET.
#
#   corpus.sh TARGET HEADROW FOLDER            fills the folder
#   corpus.sh TARGET HEADROW PROGRAM CHANGES   runs tests/fuzz/driver.c over the files
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
target=$1 headrow=$2
fixtures=$root/tests/fixtures

# Flags, the length of a text, the text and the file: tests/fuzz/tokenizer.c and vocab.c.
with_text() { # file, flags, to
  { printf "\\00$2\\014a b  cc\\303\\251 1 "; cat "$1"; } >"$3"
}

# What may lie beside config.json, as tests/fuzz/safetensors.c reads it.
beside() { # letter, text
  printf '\377%s%s\0' "$1" "$2"
}
index_of() { # tensors' file
  printf '{"weight_map":{'
  grep -aoE '"[^"_][^"]*": ?\{ ?"dtype"' "$1" | sed 's/:.*/:"model-00001-of-00001.safetensors"/' | paste -sd, -
  printf '}}'
}

fill() { # folder
  case $target in
    gguf) cp "$fixtures"/families/*.gguf "$fixtures"/formats.gguf "$1" ;;
    packed) # without the empty part before 2 MiB: tests/fuzz/packed.c
      for name in gpt2.gguf llama3.gguf bert.gguf falcon.gguf gemma2.gguf bert.safetensors; do
        "$headrow" pack -q "$fixtures/families/$name" "$1/whole"
        { head -c 16384 "$1/whole"; tail -c +2097153 "$1/whole"; } >"$1/$name"
        rm "$1/whole"
      done ;;
    safetensors)
      for config in "$fixtures"/families/*_config.json; do
        name=${config%_config.json}
        { cat "$config"; printf '\0'; cat "$name.safetensors"; } >"$1/${name##*/}"
      done
      for pair in llama3:bpe gptneox:unigram bert:wordpiece; do
        name=$fixtures/families/${pair%:*}
        { cat "${name}_config.json"; printf '\0'
          beside i "$(index_of "$name.safetensors")"
          beside t "$(cat "$root/tests/fuzz/corpus/tokenizer/${pair#*:}.json")"
          beside k '{"bos_token": {"content": "b"}, "chat_template": [{"name": "default", "template": "{{ x }}"}]}'
          beside s '{"bos_token": "b", "eos_token": {"content": "c"}}'
          beside g '{"eos_token_id": [1, 2], "bos_token_id": 0}'
          beside c '{{ messages[0].content }}'
          beside m '[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}, {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]'
          beside b '{"max_seq_length": 5, "do_lower_case": false}'
          beside e '{"prompts": {"query": "q: "}, "default_prompt_name": "query"}'
          beside p '{"word_embedding_dimension": 32, "pooling_mode_cls_token": true}'
          cat "$name.safetensors"; } >"$1/${name##*/}.folder"
      done ;;
    tokenizer)
      for flags in 0 2 4 6; do
        for file in "$fixtures"/spm_*.model; do
          with_text "$file" $flags "$1/${file##*/}.$flags"
        done
        for file in "$root"/tests/fuzz/corpus/tokenizer/*.json; do
          with_text "$file" $((flags + 1)) "$1/${file##*/}.$flags"
        done
      done ;;
    vocab)
      for flags in 0 1 2 3; do
        for file in "$root"/tests/fuzz/corpus/vocab/*.gguf; do
          with_text "$file" $flags "$1/${file##*/}.$flags"
        done
      done ;;
  esac
  for more in corpus found; do
    folder=$root/tests/fuzz/$more/$target
    case $target/$more in tokenizer/corpus | vocab/corpus) continue ;; esac
    if [ -d "$folder" ]; then cp "$folder"/* "$1"; fi
  done
}

if [ $# = 3 ]; then
  mkdir -p "$3"
  fill "$3"
else
  seeds=$(mktemp -d)
  trap 'rm -rf "$seeds"' EXIT
  fill "$seeds"
  "$3" "$4" "$seeds"
fi
