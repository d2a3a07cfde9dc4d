/* SPDX-License-Identifier: MIT
 * What a plan must hold beside what the forward pass can't be without: what the
 * row and the file's own keys say of tensors, the same in every layer, and nothing
 * that no act reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/load_internal.h"

/* A weight and a bias are gain and shift of a norm. */
static const hr_tensor *find(hr_plan *p, unsigned slot, uint32_t layer, bool bias, char *name,
                             size_t capacity) {
  return p->names->name[slot] ? hr_plan_find_part(p, slot, layer, bias, name, capacity) : NULL;
}

/* --- What keys say ----------------------------------------------------------- */

/* A key that is there: yes and no as true and false, a number of rows as it is. */
typedef struct said {
  const hr_claim *claim;
  const char *key;
  uint64_t value; /* rows; of the others 1: they are there */
  char word[24];  /* the value as the file has it */
} said;

/* false: the file does not have the key, or it says nothing. */
static hr_status read_claim(const hr_plan *p, const hr_claim *claim, said *s, bool *found) {
  bool truth = false;
  *s = (said){.claim = claim, .key = hr_plan_is_safetensors(p) ? claim->hf : claim->gguf};
  *found = false;
  if (!s->key) return HR_OK;
  if (claim->kind == HR_CLAIM_ROWS) {
    HR_TRY(hr_source_u64(p->source, s->key, &s->value, found, p->err));
    snprintf(s->word, sizeof s->word, "%llu", (unsigned long long)s->value);
    return HR_OK;
  }
  HR_TRY(hr_source_bool(p->source, s->key, &truth, found, p->err));
  snprintf(s->word, sizeof s->word, "%s", truth ? "true" : "false");
  if (claim->kind == HR_CLAIM_UNLESS && truth) *found = false;
  s->value = truth == (claim->kind == HR_CLAIM_YES);
  return HR_OK;
}

static hr_status fail_there(const hr_plan *p, const said *s, const hr_tensor *t) {
  return hr_fail(p->err, HR_ERROR_FILE, "%s: key '%s' is %s, but tensor '%s' is there",
                 hr_source_path(p->source), s->key, s->word, t->name);
}

static hr_status fail_missing(const hr_plan *p, const said *s, const char *name) {
  if (hr_source_refused_type(p->source, name)) return hr_plan_no_tensor(p, name);
  return hr_fail(p->err, HR_ERROR_FILE, "%s: key '%s' is %s, but tensor '%s' is missing",
                 hr_source_path(p->source), s->key, s->word, name);
}

static hr_status check_weight(hr_plan *p, const said *s, unsigned slot, uint32_t layer) {
  char name[128];
  const hr_tensor *t = find(p, slot, layer, false, name, sizeof name);
  if (!s->value) return t ? fail_there(p, s, t) : HR_OK;
  if (!p->names->name[slot])
    return hr_fail(p->err, HR_ERROR_FILE, "%s: key '%s' is %s, a feature that is not known for "
                   "architecture '%s'",
                   hr_source_path(p->source), s->key, s->word,
                   p->loaded->transformer.description.family);
  if (s->claim->kind != HR_CLAIM_ROWS) return t ? HR_OK : fail_missing(p, s, name);
  /* Converters write a number of segments into GGUF for models without any too. */
  if (!t) return hr_plan_is_safetensors(p) ? fail_missing(p, s, name) : HR_OK;
  if (t->dim[0] == s->value) return HR_OK;
  return hr_fail(p->err, HR_ERROR_FILE, "%s: key '%s' is %s, but tensor '%s' has %zu rows",
                 hr_source_path(p->source), s->key, s->word, t->name, t->dim[0]);
}

/* A bias of what is there. */
static hr_status check_bias(hr_plan *p, const said *s, unsigned slot, uint32_t layer) {
  char name[128];
  if (!find(p, slot, layer, false, name, sizeof name)) return HR_OK;
  const hr_tensor *t = find(p, slot, layer, true, name, sizeof name);
  if (!s->value) return t ? fail_there(p, s, t) : HR_OK;
  return t ? HR_OK : fail_missing(p, s, name);
}

static uint32_t layers_of(const hr_plan *p, unsigned slot) {
  return slot < HR_TENSOR_ATTENTION_NORM ? 1 : p->loaded->transformer.description.layers;
}

/* *biases loses what a key says is not there. */
static hr_status check_claim(hr_plan *p, const hr_claim *claim, uint64_t *biases) {
  said s;
  bool found;
  HR_TRY(read_claim(p, claim, &s, &found));
  if (!found) return HR_OK;
  if (!s.value) *biases &= ~claim->biases;
  for (unsigned slot = 0; slot < HR_TENSOR_SLOTS; slot++)
    for (uint32_t i = 0; i < layers_of(p, slot); i++) {
      if (claim->weights >> slot & 1) HR_TRY(check_weight(p, &s, slot, i));
      if (claim->biases >> slot & 1) HR_TRY(check_bias(p, &s, slot, i));
    }
  return HR_OK;
}

static hr_status check_claims(hr_plan *p, uint64_t *biases) {
  const hr_claim *claim = p->row->claims;
  for (; claim && (claim->hf || claim->gguf); claim++) HR_TRY(check_claim(p, claim, biases));
  return HR_OK;
}

/* --- What must be there ------------------------------------------------------ */

/* The part of a tensor that is not there, called as the part that is. */
static hr_status no_part(const hr_plan *p, const char *there, const char *suffix) {
  char name[128];
  snprintf(name, sizeof name, "%.*s%s", (int)(strrchr(there, '.') - there), there, suffix);
  return hr_plan_no_tensor(p, name);
}

/* The block would run without these, and give another answer. */
static hr_status check_row(hr_plan *p, uint64_t biases) {
  char name[128], weight[128];
  for (unsigned slot = 0; slot < HR_TENSOR_SLOTS; slot++) {
    uint64_t bit = UINT64_C(1) << slot, needs = p->row->needs;
    if (!find(p, slot, 0, false, weight, sizeof weight) &&
        find(p, slot, 0, true, name, sizeof name))
      return no_part(p, name, ".weight");
    for (uint32_t i = 0; i < layers_of(p, slot) && (needs | biases) & bit; i++) {
      if (needs & bit && p->names->name[slot] && !find(p, slot, i, false, name, sizeof name))
        return hr_plan_no_tensor(p, name);
      if (biases & bit && find(p, slot, i, false, weight, sizeof weight) &&
          !find(p, slot, i, true, name, sizeof name))
        return no_part(p, weight, ".bias");
    }
  }
  return HR_OK;
}

/* What one layer has all layers have. */
static hr_status check_layers_alike(hr_plan *p) {
  char name[128];
  uint32_t layers = p->loaded->transformer.description.layers;
  for (unsigned slot = HR_TENSOR_ATTENTION_NORM; slot < HR_TENSOR_SLOTS; slot++)
    for (int bias = 0; bias < 2; bias++) {
      uint32_t with = 0, without = layers;
      for (uint32_t i = 0; i < layers; i++) {
        if (find(p, slot, i, bias, name, sizeof name))
          with++;
        else if (without == layers)
          without = i;
      }
      if (with == 0 || with == layers) continue;
      find(p, slot, without, bias, name, sizeof name);
      return hr_fail(p->err, HR_ERROR_FILE,
                     "%s: tensor '%s' is missing, expected it in each of %u layers: %u have it",
                     hr_source_path(p->source), name, layers, with);
    }
  return HR_OK;
}

hr_status hr_plan_check_needs(hr_plan *p) {
  uint64_t biases = p->row->biases;
  HR_TRY(check_claims(p, &biases));
  HR_TRY(check_row(p, biases));
  return check_layers_alike(p);
}

/* --- What must not be there -------------------------------------------------- */

/* Tensors that files carry and that say nothing new: causal masks, numbers of positions,
 * and angles that follow from the values. */
static bool harmless(const char *name) {
  static const char *const endings[] = {
      ".attn.bias",      ".attn.masked_bias",    ".attention.bias",     ".attention.masked_bias",
      ".position_ids",   ".token_type_ids",      ".rotary_emb.inv_freq", ".attn_rot_embd.weight"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    if (hr_ends_with(name, endings[i])) return true;
  return false;
}

static bool starts_with_one_of(const char *name, const char *list) {
  const char *word;
  size_t length;
  while (hr_next_word(&list, &word, &length))
    if (strncmp(name, word, length) == 0) return true;
  return false;
}

/* The name behind an optional prefix. */
static const char *without_prefix(const hr_plan *p, const char *name) {
  const char *prefixes = p->names->prefix, *prefix;
  size_t length;
  while (hr_next_word(&prefixes, &prefix, &length))
    if (strncmp(name, prefix, length) == 0) return name + length;
  return name;
}

/* A tied head stored once more, or what only tasks that we don't do need. */
static bool is_spare(hr_plan *p, const char *tensor) {
  char name[128];
  if (starts_with_one_of(tensor, p->names->ignored) ||
      starts_with_one_of(without_prefix(p, tensor), p->names->ignored))
    return true;
  for (int bias = 0; p->spare_head && bias < 2; bias++) {
    const hr_tensor *head = find(p, HR_TENSOR_HEAD, 0, bias, name, sizeof name);
    if (head && strcmp(head->name, tensor) == 0) return true;
  }
  return false;
}

static int compare_addresses(const void *a, const void *b) {
  uintptr_t x = (uintptr_t) * (const hr_tensor *const *)a,
            y = (uintptr_t) * (const hr_tensor *const *)b;
  return x < y ? -1 : x > y;
}

/* The tensors that are read, sorted by address: a file may have hundreds of thousands. */
static const hr_tensor **list_used(const hr_plan *p) {
  size_t count = p->loaded->item_count;
  const hr_tensor **used = hr_calloc(count, sizeof *used);
  if (!used) return NULL;
  for (size_t i = 0; i < count; i++) used[i] = p->loaded->items[i].tensor;
  qsort(used, count, sizeof *used, compare_addresses);
  return used;
}

/* Notes a spare tensor; fails for one that is not known. */
static hr_status pass_over(void *arg, const char *name, hr_error *err) {
  hr_plan *p = arg;
  hr_loaded *loaded = p->loaded;
  const char *type = hr_source_refused_type(p->source, name);
  if (harmless(name)) return HR_OK;
  if (is_spare(p, name)) {
    if (loaded->spare_count++ == 0) snprintf(loaded->spare, sizeof loaded->spare, "%s", name);
    return HR_OK;
  }
  return hr_fail(err, HR_ERROR_FILE,
                 "%s: tensor '%s'%s%s%s is not known for architecture '%s', expected only tensors "
                 "of its %u layers",
                 hr_source_path(p->source), name, type ? " (" : "", type ? type : "",
                 type ? ")" : "", loaded->transformer.description.family,
                 loaded->transformer.description.layers);
}

/* A tensor that no act of the block reads would change the model's answer if it were known:
 * leaving it out must not pass for running the model, whatever its type. */
hr_status hr_plan_refuse_unused(hr_plan *p) {
  size_t count = hr_source_tensor_count(p->source);
  const hr_tensor **used = list_used(p);
  hr_status status = used ? HR_OK : hr_fail_memory(p->err, "list of tensors", count);
  for (size_t i = 0; i < count && status == HR_OK; i++) {
    const hr_tensor *t = hr_source_tensor_at(p->source, i);
    if (!bsearch(&t, used, p->loaded->item_count, sizeof *used, compare_addresses))
      status = pass_over(p, t->name, p->err);
  }
  hr_free(used);
  return status == HR_OK ? hr_source_visit_refused(p->source, pass_over, p, p->err) : status;
}
