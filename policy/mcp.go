package policy

import "slices"

// mcpCondition is on messages of MCP: JSON-RPC 2.0, one or a batch.
type mcpCondition struct {
	methods   []glob
	tools     []glob
	arguments map[string][]glob
}

func (m *mcpCondition) judge(body document, every bool) tri {
	switch {
	case body.unclear != "":
		return unclear
	case body.absent:
		return no
	}
	messages := []*node{body.root}
	if body.root.kind == kindArray {
		messages = body.root.children
	}
	if len(messages) == 0 {
		return unclear
	}
	found := make([]tri, len(messages))
	for i, message := range messages {
		found[i] = m.judgeMessage(message)
	}
	if every {
		return slices.Min(found)
	}
	return slices.Max(found)
}

func (m *mcpCondition) judgeMessage(message *node) tri {
	method, ok := textAt(message, "method", true)
	version, versionOK := textAt(message, "jsonrpc", false)
	if !ok || !versionOK || version != "2.0" {
		return unclear
	}
	ofTool := len(m.tools) > 0 || len(m.arguments) > 0
	switch {
	case len(m.methods) > 0 && !anyMatches(m.methods, method) || ofTool && method != "tools/call":
		return no
	case !ofTool:
		return yes
	}
	result := yes
	if len(m.tools) > 0 {
		result = message.judge("params.name", m.tools)
	}
	for path, globs := range m.arguments {
		result = min(result, message.judge("params.arguments."+path, globs))
	}
	return result
}

// textAt is a member that is a string. The second result is false when it is something else; missing may be fine.
func textAt(message *node, key string, optional bool) (string, bool) {
	found, clear := message.find(key)
	if !clear || message.kind != kindObject {
		return "", false
	}
	if found == nil {
		return "", optional
	}
	return found.text, found.kind == kindText
}
