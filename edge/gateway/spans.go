package gateway

import (
	"atoll/edge/models"
	"atoll/edge/traces"
)

// As OpenTelemetry names them.
var operations = map[models.Kind]string{
	models.Chat: "chat", models.Responses: "chat", models.Messages: "chat", models.Embeddings: "embeddings",
}

func (c *call) traceBody() {
	if span := c.caller.Span(); span != nil {
		span.Sent = int64(len(c.body))
	}
}

// traceAsk says what is asked for.
func (c *call) traceAsk() {
	if span := c.caller.Span(); span != nil {
		span.Model = &traces.Model{
			Operation: operations[c.kind], Asked: c.ask.Model, Dialect: string(c.target.Dialect),
		}
	}
}

func (c *call) traceRefusal(why *refusal) {
	if span := c.caller.Span(); span != nil {
		span.Error = why.code
	}
}

// traceBill says what has served the request, and what it has used.
func (c *call) traceBill(bill *models.Bill, dialect models.Dialect) {
	span := c.caller.Span()
	if span == nil || span.Model == nil {
		return
	}
	span.Model.Provider, span.Model.Dialect, span.Model.Name = bill.Provider, string(dialect), bill.Model
	span.Model.Usage, span.Model.Estimated = bill.Usage, bill.Estimated
	if bill.Ending == models.Broken {
		span.Error = traces.Aborted
	}
}
