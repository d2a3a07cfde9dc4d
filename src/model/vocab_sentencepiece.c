/* SPDX-License-Identifier: MIT
 * SentencePiece's .model: a protocol buffer. Message 1, repeated, is a piece
 * (1 text, 2 score, 3 kind); 2 the trainer's settings; 3 the normalizer's. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "model/source_internal.h"
#include "model/vocab_internal.h"

/* --- Protocol buffers ------------------------------------------------------- */

enum { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_BYTES = 2, WIRE_4_BYTES = 5 };

/* What is left of a message. */
typedef struct message {
  const unsigned char *at, *end;
} message;

typedef struct field {
  uint64_t number;
  unsigned wire;
  uint64_t value; /* a number, or the bits of one */
  hr_piece bytes; /* WIRE_BYTES */
} field;

static bool read_varint(message *m, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
    unsigned char byte = *m->at++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

static bool read_fixed(message *m, size_t bytes, uint64_t *value) {
  if ((size_t)(m->end - m->at) < bytes) return false;
  *value = 0;
  for (size_t i = 0; i < bytes; i++) *value |= (uint64_t)m->at[i] << 8 * i;
  m->at += bytes;
  return true;
}

static bool read_field(message *m, field *f) {
  uint64_t tag;
  if (!read_varint(m, &tag)) return false;
  *f = (field){.number = tag >> 3, .wire = (unsigned)(tag & 7)};
  if (f->number == 0) return false;
  switch (f->wire) {
    case WIRE_VARINT:
      return read_varint(m, &f->value);
    case WIRE_8_BYTES:
      return read_fixed(m, 8, &f->value);
    case WIRE_4_BYTES:
      return read_fixed(m, 4, &f->value);
    case WIRE_BYTES:
      if (!read_varint(m, &f->value) || f->value > (uint64_t)(m->end - m->at)) return false;
      f->bytes = (hr_piece){(const char *)m->at, (size_t)f->value};
      m->at += f->value;
      return true;
  }
  return false;
}

/* --- The model -------------------------------------------------------------- */

enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_KIND = 3 };
enum {
  TRAINER_TYPE = 3,
  TRAINER_SUFFIX = 24,
  TRAINER_UNK = 40,
  TRAINER_BOS = 41,
  TRAINER_EOS = 42,
  TRAINER_UNK_SURFACE = 44
};
enum {
  NORMALIZER_CHARSMAP = 2,
  NORMALIZER_PREFIX = 3,
  NORMALIZER_MERGE = 4,
  NORMALIZER_ESCAPE = 5
};
enum { TYPE_UNIGRAM = 1, TYPE_BPE = 2 };

/* Everything but the pieces, with the format's own defaults. */
typedef struct spec {
  uint64_t type;
  bool suffix, prefix, merge, escape, has_trainer, has_normalizer;
  hr_piece charsmap, unknown_text;
  int64_t unk, bos, eos;
} spec;

typedef struct reader {
  const char *where;
  const unsigned char *start;
  hr_error *err;
} reader;

static hr_status damaged(const reader *r, const message *m, const char *what) {
  return hr_fail(r->err, HR_ERROR_FILE,
                 "%s: is cut short or no SentencePiece model: at byte %zu, %s is not complete",
                 r->where, (size_t)(m->at - r->start), what);
}

static message inside(hr_piece bytes) {
  const unsigned char *at = (const unsigned char *)bytes.text;
  return (message){at, at + bytes.length};
}

/* Negative ids are written as 64-bit numbers. */
static int64_t as_id(uint64_t value) {
  return (int64_t)(int32_t)(uint32_t)value;
}

static hr_status read_trainer(const reader *r, message m, spec *s) {
  field f;
  while (m.at < m.end) {
    if (!read_field(&m, &f)) return damaged(r, &m, "the trainer's settings");
    switch (f.number) {
      case TRAINER_TYPE:
        s->type = f.value;
        break;
      case TRAINER_SUFFIX:
        s->suffix = f.value != 0;
        break;
      case TRAINER_UNK:
        s->unk = as_id(f.value);
        break;
      case TRAINER_BOS:
        s->bos = as_id(f.value);
        break;
      case TRAINER_EOS:
        s->eos = as_id(f.value);
        break;
      case TRAINER_UNK_SURFACE:
        if (f.wire == WIRE_BYTES) s->unknown_text = f.bytes;
        break;
      default:
        break;
    }
  }
  return HR_OK;
}

static hr_status read_normalizer(const reader *r, message m, spec *s) {
  field f;
  while (m.at < m.end) {
    if (!read_field(&m, &f)) return damaged(r, &m, "the normalizer's settings");
    switch (f.number) {
      case NORMALIZER_CHARSMAP:
        if (f.wire == WIRE_BYTES) s->charsmap = f.bytes;
        break;
      case NORMALIZER_PREFIX:
        s->prefix = f.value != 0;
        break;
      case NORMALIZER_MERGE:
        s->merge = f.value != 0;
        break;
      case NORMALIZER_ESCAPE:
        s->escape = f.value != 0;
        break;
      default:
        break;
    }
  }
  return HR_OK;
}

static hr_status read_piece(const reader *r, message m, hr_vocab_storage *storage, size_t i) {
  field f;
  uint64_t kind = HR_TOKEN_NORMAL;
  while (m.at < m.end) {
    if (!read_field(&m, &f)) return damaged(r, &m, "a piece");
    if (f.number == PIECE_TEXT && f.wire == WIRE_BYTES) storage->tokens[i] = f.bytes;
    if (f.number == PIECE_KIND && f.wire == WIRE_VARINT) kind = f.value;
    if (f.number == PIECE_SCORE && f.wire == WIRE_4_BYTES) {
      uint32_t bits = (uint32_t)f.value;
      memcpy(&storage->scores[i], &bits, sizeof bits);
    }
  }
  if (kind < HR_TOKEN_NORMAL || kind > HR_TOKEN_BYTE)
    return hr_fail(r->err, HR_ERROR_FILE, "%s: piece %zu has type %llu, expected 1 to %d", r->where,
                   i, (unsigned long long)kind, HR_TOKEN_BYTE);
  storage->kinds[i] = (int32_t)kind;
  return HR_OK;
}

/* The whole file once: the settings, and how many pieces there are. */
static hr_status read_settings(const reader *r, message m, spec *s, size_t *pieces) {
  field f;
  while (m.at < m.end) {
    hr_status status = HR_OK;
    if (!read_field(&m, &f)) return damaged(r, &m, "the model");
    if (f.wire != WIRE_BYTES) continue;
    *pieces += f.number == MODEL_PIECE;
    s->has_trainer |= f.number == MODEL_TRAINER;
    s->has_normalizer |= f.number == MODEL_NORMALIZER;
    if (f.number == MODEL_TRAINER) status = read_trainer(r, inside(f.bytes), s);
    if (f.number == MODEL_NORMALIZER) status = read_normalizer(r, inside(f.bytes), s);
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

/* And once more: the pieces. */
static hr_status read_pieces(const reader *r, message m, hr_vocab_storage *storage) {
  field f;
  for (size_t i = 0; m.at < m.end;) {
    if (!read_field(&m, &f)) return damaged(r, &m, "the model");
    if (f.wire != WIRE_BYTES || f.number != MODEL_PIECE) continue;
    hr_status status = read_piece(r, inside(f.bytes), storage, i++);
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

static int32_t id_or_none(const hr_vocab *vocab, int64_t id) {
  return id >= 0 && (uint64_t)id < vocab->count ? (int32_t)id : -1;
}

/* The unknown token is told by its kind: there is one in every model. */
static hr_status find_unknown(const reader *r, const hr_vocab_storage *storage, hr_vocab *vocab) {
  for (size_t i = 0; i < vocab->count && vocab->unknown < 0; i++)
    if (storage->kinds[i] == HR_TOKEN_UNKNOWN) vocab->unknown = (int32_t)i;
  if (vocab->unknown >= 0) return HR_OK;
  return hr_fail(r->err, HR_ERROR_FILE, "%s: has no unknown piece, expected one", r->where);
}

static hr_status add_steps(const spec *s, hr_vocab_storage *storage, hr_vocab *vocab,
                           hr_error *err) {
  hr_text_step whole = {.kind = HR_STEP_SENTENCEPIECE,
                        .content = s->charsmap,
                        .flags = (s->prefix ? (unsigned)HR_SPM_PREFIX : 0) |
                                 (s->suffix ? (unsigned)HR_SPM_SUFFIX : 0) |
                                 (s->merge ? (unsigned)HR_SPM_MERGE_SPACES : 0) |
                                 (s->escape ? 0 : (unsigned)HR_SPM_KEEP_SPACES)};
  hr_status status = hr_vocab_add_step(&storage->normalizer, whole, vocab->where, err);
  if (status == HR_OK) status = hr_vocab_add_space_decoder(storage, vocab->where, err);
  hr_vocab_take_steps(storage, vocab);
  return status;
}

static hr_status describe(const reader *r, const spec *s, hr_vocab_storage *storage,
                          hr_vocab *vocab) {
  if (s->type != TYPE_UNIGRAM && s->type != TYPE_BPE)
    return hr_fail(r->err, HR_ERROR_FILE,
                   "%s: model type %llu is not known, expected 1 (unigram) or 2 (BPE)", r->where,
                   (unsigned long long)s->type);
  vocab->kind = s->type == TYPE_BPE ? HR_VOCAB_SPM : HR_VOCAB_UNIGRAM;
  vocab->bos = id_or_none(vocab, s->bos);
  vocab->eos = id_or_none(vocab, s->eos);
  vocab->strip_first_space = (s->prefix || s->merge) && !s->suffix;
  vocab->fuse_unknown = vocab->single_precision = vocab->inline_user_tokens = true;
  vocab->unknown_text = s->unknown_text;
  hr_status status = find_unknown(r, storage, vocab);
  return status == HR_OK ? add_steps(s, storage, vocab, r->err) : status;
}

hr_status hr_vocab_parse_sentencepiece(const void *data, size_t bytes, const char *where,
                                       hr_vocab_storage *storage, hr_vocab *vocab, hr_error *err) {
  spec s = {.type = TYPE_UNIGRAM,
            .prefix = true,
            .merge = true,
            .escape = true,
            .unknown_text = {" \xe2\x81\x87 ", 5},
            .unk = 0,
            .bos = 1,
            .eos = 2};
  reader r = {.where = where, .start = data, .err = err};
  message whole = inside((hr_piece){data, bytes});
  size_t pieces = 0;
  vocab->where = where;
  hr_status status = read_settings(&r, whole, &s, &pieces);
  if (status == HR_OK && (pieces == 0 || pieces >= HR_VOCAB_MAX))
    status = hr_fail(err, HR_ERROR_FILE,
                     "%s: has %zu pieces, expected 1 to %zu; is it a SentencePiece model?", where,
                     pieces, HR_VOCAB_MAX - 1);
  /* They come last, and without them everything would be taken for the defaults. */
  if (status == HR_OK && !(s.has_trainer && s.has_normalizer))
    status = hr_fail(err, HR_ERROR_FILE,
                     "%s: is cut short or no SentencePiece model: its %s's settings are missing",
                     where, s.has_trainer ? "normalizer" : "trainer");
  if (status == HR_OK) status = hr_vocab_reserve(storage, vocab, pieces, true, err);
  if (status == HR_OK) status = read_pieces(&r, whole, storage);
  return status == HR_OK ? describe(&r, &s, storage, vocab) : status;
}
