package gateway

import (
	"encoding/json"
	"net/http"

	"atoll/edge/models"
)

// list answers which models may be used.
func (c *call) list() {
	entries := c.offer.Names(c.access, c.target)
	data := make([]map[string]any, len(entries))
	for i, each := range entries {
		if c.target.Dialect == models.Anthropic {
			data[i] = map[string]any{
				"type": "model", "id": each.Model, "display_name": each.Model, "created_at": "1970-01-01T00:00:00Z",
			}
			continue
		}
		data[i] = map[string]any{"id": each.Model, "object": "model", "created": 0, "owned_by": each.Provider}
	}
	content := map[string]any{"object": "list", "data": data}
	if c.target.Dialect == models.Anthropic {
		content = map[string]any{"data": data, "has_more": false, "first_id": nil, "last_id": nil}
		if len(entries) > 0 {
			content["first_id"], content["last_id"] = entries[0].Model, entries[len(entries)-1].Model
		}
	}
	text, err := json.Marshal(content)
	if err != nil {
		c.refuse(unavailable(err))
		return
	}
	c.writer.Header().Set("Content-Type", "application/json")
	c.writer.WriteHeader(http.StatusOK)
	// A guest that is gone does not read it.
	_, _ = c.writer.Write(append(text, '\n'))
}
