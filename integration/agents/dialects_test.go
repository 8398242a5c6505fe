package agents_test

import (
	"fmt"
	"maps"
	"strings"
)

// dialects are those that agents speak: OpenAI's two, Anthropic's and Google's.
var dialects = []dialect{
	{"/chat/completions", readChat, answerChat},
	{"/responses", readResponses, answerResponses},
	{"/messages/count_tokens", readMessages, func(conversation, turn, int) []event {
		return []event{{"", object{"input_tokens": 100}}}
	}},
	{"/messages", readMessages, answerMessages},
	{":countTokens", readGemini, func(conversation, turn, int) []event {
		return []event{{"", object{"totalTokens": 100}}}
	}},
	{"enerateContent", readGemini, answerGemini},
}

func readChat(r object) conversation {
	c := conversation{stream: r["stream"] == true, model: word(r, "model")}
	for _, m := range objects(r["messages"]) {
		switch m["role"] {
		case "tool":
			c.results = append(c.results, text(m["content"]))
		case "assistant":
			c.said++
		}
	}
	for _, t := range objects(r["tools"]) {
		if f, ok := t["function"].(object); ok {
			c.tools = append(c.tools, word(f, "name"))
		}
	}
	return c
}

func answerChat(c conversation, t turn, n int) []event {
	message, reason := object{"role": "assistant", "content": t.text}, "stop"
	delta := message
	if t.tool != "" {
		call := object{"id": fmt.Sprintf("call_%d", n), "type": "function",
			"function": object{"name": t.tool, "arguments": text(t.args)}}
		message, reason = object{"role": "assistant", "content": nil, "tool_calls": []any{call}}, "tool_calls"
		delta = object{"role": "assistant", "content": nil, "tool_calls": []any{object{"index": 0, "id": call["id"],
			"type": "function", "function": call["function"]}}}
	}
	usage := object{"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
	whole := func(kind string, more object) object {
		o := object{"id": fmt.Sprintf("chat_%d", n), "object": kind, "created": 1, "model": c.model}
		for k, v := range more {
			o[k] = v
		}
		return o
	}
	chunk := func(delta object, reason any) event {
		return event{"", whole("chat.completion.chunk", object{
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": reason}}})}
	}
	return []event{
		chunk(delta, nil), chunk(object{}, reason),
		{"", whole("chat.completion.chunk", object{"choices": []any{}, "usage": usage})},
		{"", "[DONE]"},
		{"", whole("chat.completion", object{"usage": usage,
			"choices": []any{object{"index": 0, "message": message, "finish_reason": reason}}})},
	}
}

func readResponses(r object) conversation {
	c := conversation{stream: r["stream"] == true, model: word(r, "model")}
	for _, item := range objects(r["input"]) {
		switch kind := word(item, "type"); {
		case strings.HasSuffix(kind, "_call_output"):
			c.results = append(c.results, text(item["output"]))
		case kind == "additional_tools":
			c.tools = append(c.tools, toolNames(item["tools"])...)
		case item["role"] == "assistant":
			c.said++
		}
	}
	c.tools = append(c.tools, toolNames(r["tools"])...)
	return c
}

// toolNames are those of a list that has namespaces too.
func toolNames(list any) (names []string) {
	for _, t := range objects(list) {
		if t["type"] != "namespace" {
			names = append(names, word(t, "name"))
			continue
		}
		for _, name := range toolNames(t["tools"]) {
			names = append(names, word(t, "name")+"/"+name)
		}
	}
	return names
}

func answerResponses(c conversation, t turn, n int) []event {
	item := object{"type": "message", "id": fmt.Sprintf("msg_%d", n), "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": t.text, "annotations": []any{}}}}
	begun := object{"type": "message", "id": item["id"], "role": "assistant", "status": "in_progress",
		"content": []any{}}
	said := []event{
		{"response.content_part.added", object{"item_id": item["id"], "output_index": 0, "content_index": 0,
			"part": object{"type": "output_text", "text": "", "annotations": []any{}}}},
		{"response.output_text.delta", object{"item_id": item["id"], "output_index": 0, "content_index": 0,
			"delta": t.text}},
	}
	if t.tool != "" {
		kind, takes, input := "function_call", "arguments", text(t.args)
		if t.args == nil {
			kind, takes, input = "custom_tool_call", "input", t.text
		}
		item = object{"type": kind, "id": fmt.Sprintf("fc_%d", n), "call_id": fmt.Sprintf("call_%d", n), "name": t.tool,
			takes: input, "status": "completed"}
		if space, name, ok := strings.Cut(t.tool, "/"); ok {
			item["namespace"], item["name"] = space, name
		}
		begun = maps.Clone(item)
		begun[takes], begun["status"] = "", "in_progress"
		said = []event{
			{"response." + kind + "_" + takes + ".delta",
				object{"item_id": item["id"], "output_index": 0, "delta": input}},
			{"response." + kind + "_" + takes + ".done",
				object{"item_id": item["id"], "output_index": 0, takes: input}},
		}
	}
	response := func(status string, output []any) object {
		return object{"id": fmt.Sprintf("resp_%d", n), "object": "response", "created_at": 1, "status": status,
			"model": c.model, "output": output, "parallel_tool_calls": false, "tool_choice": "auto", "tools": []any{},
			"usage": object{"input_tokens": 50, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": 10,
				"output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 60}}
	}
	done := response("completed", []any{item})
	all := []event{
		{"response.created", object{"response": response("in_progress", []any{})}},
		{"response.output_item.added", object{"output_index": 0, "item": begun}},
	}
	all = append(all, said...)
	all = append(all, event{"response.output_item.done", object{"output_index": 0, "item": item}},
		event{"response.completed", object{"response": done}})
	for i := range all {
		data, _ := all[i].data.(object)
		data["type"], data["sequence_number"] = all[i].name, i
	}
	return append(all, event{"", done})
}

func readMessages(r object) conversation {
	c := conversation{stream: r["stream"] == true, model: word(r, "model")}
	for _, m := range objects(r["messages"]) {
		if m["role"] == "assistant" {
			c.said++
			continue
		}
		for _, b := range objects(m["content"]) {
			if b["type"] == "tool_result" {
				c.results = append(c.results, text(b["content"]))
			}
		}
	}
	for _, t := range objects(r["tools"]) {
		c.tools = append(c.tools, word(t, "name"))
	}
	return c
}

func answerMessages(c conversation, t turn, n int) []event {
	block, begun := object{"type": "text", "text": t.text}, object{"type": "text", "text": ""}
	delta, reason := object{"type": "text_delta", "text": t.text}, "end_turn"
	if t.tool != "" {
		id := fmt.Sprintf("toolu_%d", n)
		block = object{"type": "tool_use", "id": id, "name": t.tool, "input": t.args}
		begun = object{"type": "tool_use", "id": id, "name": t.tool, "input": object{}}
		delta, reason = object{"type": "input_json_delta", "partial_json": text(t.args)}, "tool_use"
	}
	message := func(content []any, reason any) object {
		return object{"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant", "model": c.model,
			"content": content, "stop_reason": reason, "stop_sequence": nil,
			"usage": object{"input_tokens": 50, "output_tokens": 10}}
	}
	all := []event{
		{"message_start", object{"message": message([]any{}, nil)}},
		{"content_block_start", object{"index": 0, "content_block": begun}},
		{"content_block_delta", object{"index": 0, "delta": delta}},
		{"content_block_stop", object{"index": 0}},
		{"message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil},
			"usage": object{"output_tokens": 10}}},
		{"message_stop", object{}},
	}
	for i := range all {
		data, _ := all[i].data.(object)
		data["type"] = all[i].name
	}
	return append(all, event{"", message([]any{block}, reason)})
}

func readGemini(r object) conversation {
	c := conversation{}
	for _, content := range objects(r["contents"]) {
		if content["role"] == "model" {
			c.said++
		}
		for _, p := range objects(content["parts"]) {
			if answer, ok := p["functionResponse"].(object); ok {
				c.results = append(c.results, text(answer["response"]))
			}
		}
	}
	for _, t := range objects(r["tools"]) {
		for _, f := range objects(t["functionDeclarations"]) {
			c.tools = append(c.tools, word(f, "name"))
		}
	}
	if how, ok := r["generationConfig"].(object); ok && how["responseMimeType"] == "application/json" {
		// Who speaks next, and which model is to.
		c.aside = text(object{"reasoning": "x", "next_speaker": "user", "model_choice": "flash",
			"complexity_reasoning": "x", "complexity_score": 1})
	}
	return c
}

func answerGemini(_ conversation, t turn, n int) []event {
	part := object{"text": t.text}
	if t.tool != "" {
		part = object{"functionCall": object{"id": fmt.Sprintf("fc_%d", n), "name": t.tool, "args": t.args}}
	}
	return []event{{"", object{
		"candidates": []any{object{"index": 0, "finishReason": "STOP",
			"content": object{"role": "model", "parts": []any{part}}}},
		"usageMetadata": object{"promptTokenCount": 50, "candidatesTokenCount": 10, "totalTokenCount": 60},
		"modelVersion":  "scripted",
	}}}
}
