/* SPDX-License-Identifier: MIT
 * headrow pack: weights in panels on disk, to be mapped instead of packed at
 * every start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "engine/engine.h"
#include "interrupt.h"
#include "model/packed.h"
#include "output.h"
#include "save.h"

typedef struct settings {
  cli_common common;
} settings;

/* Bytes from which starting threads is worth their while. */
enum { PARALLEL_BYTES = 16 << 20 };

static bool sink(void *arg, const void *data, size_t bytes) {
  return cli_save_write(arg, data, bytes);
}

/* What was written must be what is read, before it gets its name. */
static hr_status check(const char *path, const hr_model *model, hr_error *err) {
  hr_loaded loaded = {0};
  hr_source *source = hr_source_open(path, err);
  if (!source) return err->status;
  hr_status status = hr_load_plan(source, HR_WEIGHTS_NATIVE, &loaded, err);
  if (status == HR_OK && loaded.weight_bytes != model->loaded.weight_bytes)
    status = hr_fail(err, HR_ERROR_FILE, "%s: holds %zu bytes of weights, expected %zu", path,
                     loaded.weight_bytes, model->loaded.weight_bytes);
  hr_loaded_finish(&loaded);
  hr_source_close(source);
  return status;
}

static int write_weights(const settings *s, const hr_model *model, const hr_packed_file *file,
                         cli_save *save) {
  hr_error err;
  cli_progress progress = {.what = "packing", .start = cli_now()};
  bool show = isatty(STDERR_FILENO) && !s->common.quiet;
  hr_load_options options = {.progress = cli_report_progress,
                             .progress_data = show ? &progress : NULL};
  if (model->loaded.weight_bytes >= PARALLEL_BYTES || s->common.cores) {
    const hr_team_options team = {.threads = (unsigned)s->common.threads.value,
                                  .threads_batch = (unsigned)s->common.threads_batch.value,
                                  .no_pin = s->common.no_pin,
                                  .cores = s->common.cores};
    options.team = hr_team_create(&team, &err);
    if (!options.team) return cli_fail_error(NULL, &err);
  }
  hr_status status = hr_packed_file_write(file, model->source, &model->loaded, &model->kernels,
                                          &options, sink, save, &err);
  hr_team_free(options.team);
  cli_end_progress(&progress);
  if (status == HR_OK && save->temporary) status = check(save->temporary, model, &err);
  return status == HR_OK || save->error ? HR_OK : cli_fail_error(NULL, &err);
}

static int save_packed(const settings *s, const hr_model *model, const char *out) {
  hr_packed_file file;
  hr_error err;
  cli_save save;
  hr_status made = hr_packed_file_init(&file, model->source, (hr_weights)s->common.weights.value,
                                       &model->loaded, &err);
  int status = made == HR_OK ? cli_save_begin(&save, out, file.bytes) : cli_fail_error(NULL, &err);
  if (status == HR_OK) {
    status = write_weights(s, model, &file, &save);
    if (status == HR_OK)
      status = cli_save_end(&save);
    else
      cli_save_abandon(&save);
  }
  char size[CLI_SIZE_TEXT];
  if (status == HR_OK && !s->common.quiet)
    cli_note("%s: %s, to be given as MODEL", out, cli_size_text(file.bytes, size));
  hr_packed_file_finish(&file);
  return status;
}

static int pack_command(const cli_command *command, int argc, char **argv) {
  settings s = {0};
  int status;
  if (!cli_start(command, argc, argv, &s, &status)) return status;
  const cli_texts *p = &s.common.positional;
  if (p->count != 2)
    return cli_fail(HR_ERROR_USAGE, "%s: %zu arguments, expected MODEL and OUT", command->name,
                    p->count);
  const char *name = p->item[0], *out = p->item[1];
  if (cli_is_same_file(name, out))
    return cli_fail(HR_ERROR_USAGE, "%s: is the model itself, expected another place", out);
  hr_model *model = cli_plan_model(&s.common, name, &status);
  if (!model) return status;
  cli_tell_about_model(&s.common, model);
  status = save_packed(&s, model, out);
  hr_model_free(model);
  return status;
}

const cli_command cli_pack_command = {
    .name = "pack",
    .arguments = "MODEL OUT [options]",
    .summary = "write a model in the form that starts without delay",
    .details =
        "OUT holds the weights as they lie in memory, the same bytes on every machine, and all\n"
        "else that the model needs. It is given as MODEL to any command, which then maps the\n"
        "weights instead of packing them, and gives the same answers. --weights converts.",
    .run = pack_command,
};
