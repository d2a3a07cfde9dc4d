/* SPDX-License-Identifier: MIT
 * Statements, and a whole rendering. */
#include <string.h>

#include "base/memory.h"
#include "template/node.h"

/* --- Setting names -------------------------------------------------------------- */

static void set_attribute(hr_machine *m, const hr_node *target, hr_datum value) {
  hr_datum d = hr_evaluate(m, target->a);
  m->line = target->line;
  if (d.kind != HR_NAMESPACE)
    hr_machine_fail(m, "only attributes of a namespace can be set");
  else
    hr_dict_set(m, d.dict, hr_text_datum(target->text), value);
}

static void bind(hr_machine *m, hr_scope *scope, const hr_node *target, hr_datum value) {
  if (m->failed) return;
  if (target->kind == HR_NODE_NAME) return hr_scope_set(m, scope, target->text, value);
  if (target->kind == HR_NODE_ATTRIBUTE) return set_attribute(m, target, value);
  const hr_list *list = hr_elements(m, value);
  size_t i = 0;
  for (const hr_node *n = target->items; n && list && !m->failed; n = n->next, i++)
    if (i < list->count) bind(m, scope, n, list->item[i]);
  if (list && i != list->count)
    hr_machine_fail(m, "%zu values for %zu names", list->count, i);
}

/* --- Bodies ------------------------------------------------------------------------ */

static hr_flow run_in(hr_machine *m, hr_scope *scope, const hr_node *body) {
  hr_scope *outer = m->scope;
  m->scope = scope;
  hr_flow flow = scope ? hr_run(m, body) : HR_FLOW_ON;
  m->scope = outer;
  return flow;
}

/* What a body prints, in a scope. */
static hr_datum capture(hr_machine *m, hr_scope *scope, const hr_node *body, hr_flow *flow) {
  hr_builder built = {.machine = m};
  hr_builder *outer = m->out;
  m->out = &built;
  *flow = run_in(m, scope, body);
  m->out = outer;
  return hr_text_datum(hr_built(&built));
}

/* --- Loops --------------------------------------------------------------------------- */

/* Those elements for which the condition of a loop holds. */
static hr_list *choose(hr_machine *m, const hr_node *node, hr_scope *outer, hr_list *items) {
  if (!node->c) return items;
  hr_list *chosen = hr_list_new(m, 0);
  hr_scope *before = m->scope;
  for (size_t i = 0; i < items->count && !m->failed; i++) {
    m->scope = hr_scope_new(m, outer);
    bind(m, m->scope, node->a, items->item[i]);
    if (hr_truth(hr_evaluate(m, node->c))) hr_list_add(m, chosen, items->item[i]);
  }
  m->scope = before;
  return chosen;
}

static hr_flow run_loop(hr_machine *m, const hr_node *node, hr_scope *outer, hr_datum over,
                        unsigned depth) {
  hr_list *items = hr_elements(m, over);
  if (items) items = choose(m, node, outer, items);
  hr_loop *loop = hr_machine_alloc(m, 1, sizeof *loop);
  if (!items || !loop) return HR_FLOW_ON;
  *loop = (hr_loop){.node = node, .items = items, .depth = depth, .scope = outer};
  for (; loop->index < items->count && hr_machine_step(m, 0); loop->index++) {
    hr_scope *scope = hr_scope_new(m, outer);
    hr_scope_set(m, scope, HR_TEXT("loop"), (hr_datum){.kind = HR_LOOP, .loop = loop});
    bind(m, scope, node->a, items->item[loop->index]);
    if (run_in(m, scope, node->body) == HR_FLOW_BREAK) return HR_FLOW_ON;
  }
  return items->count == 0 ? run_in(m, hr_scope_new(m, outer), node->other) : HR_FLOW_ON;
}

hr_datum hr_call_loop(hr_machine *m, const hr_loop *loop, const hr_call *call) {
  if (!loop->node->recursive) return hr_machine_fail(m, "the loop is not 'recursive'");
  if (call->count != 1 || call->named) return hr_machine_fail(m, "'loop' takes one argument");
  hr_builder built = {.machine = m};
  hr_builder *outer = m->out;
  m->out = &built;
  run_loop(m, loop->node, loop->scope, call->item[0], loop->depth + 1);
  m->out = outer;
  return hr_text_datum(hr_built(&built));
}

/* --- Macros ---------------------------------------------------------------------------- */

static bool has_parameter(hr_machine *m, const hr_node *macro, hr_text name) {
  for (const hr_node *n = macro->items; n; n = n->next)
    if (hr_name_is(m, n->text, name)) return true;
  return hr_text_is(name, "caller");
}

static bool check_arguments(hr_machine *m, const hr_node *macro, const hr_call *call) {
  size_t parameters = 0;
  for (const hr_node *n = macro->items; n && hr_machine_work(m, 1); n = n->next) parameters++;
  if (call->count > parameters)
    hr_machine_fail(m, "macro '%.*s' takes at most %zu arguments, not %zu", HR_SHOW(macro->text),
                    parameters, call->count);
  for (size_t i = 0; call->named && i < call->named->count; i++)
    if (!has_parameter(m, macro, call->named->key[i].text))
      hr_machine_fail(m, "macro '%.*s' has no parameter '%.*s'", HR_SHOW(macro->text),
                      HR_SHOW(call->named->key[i].text));
  return !m->failed;
}

/* Defaults may use the parameters before them: they are evaluated in the macro's scope. */
static void bind_parameters(hr_machine *m, const hr_node *macro, const hr_call *call) {
  size_t i = 0;
  for (const hr_node *n = macro->items; n && !m->failed; n = n->next, i++) {
    const hr_datum *named = hr_dict_find_name(m, call->named, n->text);
    hr_datum value = i < call->count ? call->item[i]
                     : named         ? *named
                     : n->a          ? hr_evaluate(m, n->a)
                                     : hr_undefined(n->text);
    hr_scope_set(m, m->scope, n->text, value);
  }
  const hr_datum *caller = hr_dict_find_name(m, call->named, HR_TEXT("caller"));
  if (caller) hr_scope_set(m, m->scope, HR_TEXT("caller"), *caller);
}

hr_datum hr_call_macro(hr_machine *m, const hr_macro *macro, const hr_call *call) {
  hr_scope *scope = hr_scope_new(m, macro->scope), *outer = m->scope;
  if (!scope || !check_arguments(m, macro->node, call)) return (hr_datum){.kind = HR_UNDEFINED};
  scope->in_macro = true;
  m->scope = scope;
  bind_parameters(m, macro->node, call);
  m->scope = outer;
  hr_flow flow;
  return capture(m, scope, macro->node->body, &flow);
}

static hr_datum make_macro(hr_machine *m, const hr_node *node) {
  hr_macro *macro = hr_machine_alloc(m, 1, sizeof *macro);
  if (!macro) return (hr_datum){.kind = HR_UNDEFINED};
  *macro = (hr_macro){.node = node, .scope = m->scope};
  return (hr_datum){.kind = HR_MACRO, .macro = macro};
}

/* The call's arguments and the block as `caller`. */
static void run_call_block(hr_machine *m, const hr_node *node) {
  hr_datum callee = hr_evaluate(m, node->a->a);
  hr_list *items = hr_list_new(m, 0);
  hr_dict *named = hr_dict_new(m);
  for (const hr_node *n = node->a->items; n && !m->failed; n = n->next) {
    if (n->kind == HR_NODE_NAMED)
      hr_dict_set(m, named, hr_text_datum(n->text), hr_evaluate(m, n->a));
    else
      hr_list_add(m, items, hr_evaluate(m, n));
  }
  hr_dict_set(m, named, hr_literal("caller"), make_macro(m, node));
  if (m->failed) return;
  hr_call call = {.item = items->item, .count = items->count, .named = named};
  m->line = node->line;
  hr_add_text(m->out, hr_to_text(m, hr_call_datum(m, callee, &call)));
}

/* --- Statements ----------------------------------------------------------------------------- */

static hr_flow run_set_block(hr_machine *m, const hr_node *node) {
  hr_flow flow;
  hr_datum text = capture(m, hr_scope_new(m, m->scope), node->body, &flow);
  m->block = text;
  if (node->b) text = hr_evaluate(m, node->b);
  bind(m, m->scope, node->a, text);
  return flow;
}

static hr_flow run_filter_block(hr_machine *m, const hr_node *node) {
  hr_flow flow;
  m->block = capture(m, hr_scope_new(m, m->scope), node->body, &flow);
  hr_add_text(m->out, hr_to_text(m, hr_evaluate(m, node->a)));
  return flow;
}

static hr_flow run_with(hr_machine *m, const hr_node *node) {
  hr_scope *scope = hr_scope_new(m, m->scope);
  for (const hr_node *n = node->items; n && !m->failed; n = n->next->next)
    bind(m, scope, n, hr_evaluate(m, n->next));
  return run_in(m, scope, node->body);
}

static hr_flow run_one(hr_machine *m, const hr_node *node) {
  m->line = node->line;
  switch (node->kind) {
    case HR_NODE_DATA: hr_add_text(m->out, node->text); break;
    case HR_NODE_PRINT: hr_add_text(m->out, hr_to_text(m, hr_evaluate(m, node->a))); break;
    case HR_NODE_IF: return hr_run(m, hr_truth(hr_evaluate(m, node->a)) ? node->body : node->other);
    case HR_NODE_FOR: return run_loop(m, node, m->scope, hr_evaluate(m, node->b), 0);
    case HR_NODE_SET: bind(m, m->scope, node->a, hr_evaluate(m, node->b)); break;
    case HR_NODE_SET_BLOCK: return run_set_block(m, node);
    case HR_NODE_MACRO: hr_scope_set(m, m->scope, node->text, make_macro(m, node)); break;
    case HR_NODE_CALL_BLOCK: run_call_block(m, node); break;
    case HR_NODE_FILTER_BLOCK: return run_filter_block(m, node);
    case HR_NODE_WITH: return run_with(m, node);
    case HR_NODE_SCOPE: return run_in(m, hr_scope_new(m, m->scope), node->body);
    case HR_NODE_BREAK: return HR_FLOW_BREAK;
    case HR_NODE_CONTINUE: return HR_FLOW_CONTINUE;
    default: break; /* expressions are not run */
  }
  return HR_FLOW_ON;
}

hr_flow hr_run(hr_machine *m, const hr_node *statements) {
  hr_flow flow = HR_FLOW_ON;
  if (!hr_machine_enter(m)) return flow;
  for (const hr_node *n = statements; n && flow == HR_FLOW_ON && hr_machine_step(m, 0); n = n->next)
    flow = run_one(m, n);
  hr_machine_leave(m);
  return flow;
}

/* --- A whole rendering ------------------------------------------------------------------------ */

static hr_datum message_datum(hr_machine *m, const hr_chat_message *message) {
  hr_dict *dict = hr_dict_new(m);
  hr_text content = hr_data_text(m, message->content, message->length);
  hr_dict_set(m, dict, hr_literal("role"), hr_literal(message->role));
  hr_dict_set(m, dict, hr_literal("content"), hr_text_datum(content));
  return dict ? (hr_datum){.kind = HR_DICT, .dict = dict} : (hr_datum){.kind = HR_UNDEFINED};
}

static void set_messages(hr_machine *m, const hr_template_input *input) {
  hr_list *list = hr_list_new(m, input->message_count);
  for (size_t i = 0; i < input->message_count && !m->failed; i++)
    hr_list_add(m, list, message_datum(m, &input->messages[i]));
  hr_scope_set(m, m->scope, HR_TEXT("messages"), hr_list_datum(HR_LIST, list));
}

static void set_variables(hr_machine *m, const json_t *variables) {
  for (void *at = json_object_iter((json_t *)variables); at && !m->failed;
       at = json_object_iter_next((json_t *)variables, at)) {
    const char *key = json_object_iter_key(at);
    const json_t *value = json_object_iter_value(at);
    bool messages = strcmp(key, "messages") == 0;
    hr_scope_set(m, m->scope, hr_literal(key).text,
                 messages ? hr_messages_from_json(m, value) : hr_from_json(m, value));
  }
}

static void set_input(hr_machine *m, const hr_template_input *input) {
  m->scope = hr_scope_new(m, NULL);
  for (size_t i = 0; i < input->word_count; i++) {
    const hr_template_word *word = &input->words[i];
    hr_scope_set(m, m->scope, hr_literal(word->name).text,
                 hr_text_datum((hr_text){.bytes = word->text, .length = word->length}));
  }
  hr_scope_set(m, m->scope, HR_TEXT("add_generation_prompt"),
               hr_bool(input->add_generation_prompt));
  if (input->variables) set_variables(m, input->variables);
  if (input->has_messages) set_messages(m, input);
}

static hr_status copy_output(hr_machine *m, hr_text text, hr_template_output *output) {
  output->text = hr_strndup(text.bytes, text.length);
  output->data = hr_calloc(text.length, 1);
  if (!output->text || !output->data) return hr_fail_memory(m->err, m->name, text.length);
  if (text.data) memcpy(output->data, text.data, text.length);
  output->length = text.length;
  return HR_OK;
}

static size_t memory_limit(const hr_template_input *input) {
  size_t limit = HR_TEMPLATE_MEMORY, more;
  for (size_t i = 0; i < input->message_count; i++)
    if (!hr_mul_size(input->messages[i].length, HR_TEMPLATE_MEMORY_RATIO, &more) ||
        !hr_add_size(limit, more, &limit))
      return SIZE_MAX / 2;
  return limit;
}

hr_status hr_template_render(const hr_chat_template *t, const hr_template_input *input,
                             hr_template_output *output, hr_error *err) {
  *output = (hr_template_output){0};
  hr_machine m = {.arena = {.limit = memory_limit(input)},
                  .name = t->name,
                  .now = input->now,
                  .err = err,
                  .line = 1};
  hr_builder built = {.machine = &m};
  m.out = &built;
  set_input(&m, input);
  m.scope = hr_scope_new(&m, m.scope); /* the template's own names */
  if (!m.failed) hr_run(&m, t->body);
  hr_status status = m.failed ? m.status : copy_output(&m, hr_built(&built), output);
  hr_arena_finish(&m.arena);
  return status;
}

void hr_template_output_finish(hr_template_output *output) {
  hr_free(output->text);
  hr_free(output->data);
  *output = (hr_template_output){0};
}
