package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"atoll/edge/models"
	"atoll/policy"
)

const (
	bodyMost = 20 << 20
	// How long a request waits for the owner to allot something.
	allotMost = 5 * time.Second
	// How much output is reserved for a request that does not bound it, and the least that is worth a request.
	outputUsual = 32 << 10
	outputLeast = 16
)

var (
	errOffersNothing = errors.New("no providers of models are set up on this computer")
	errNoAccess      = errors.New("this sandbox has no models")
	errNoPath        = errors.New("the path is none of /openai/v1/ and /anthropic/v1/")
	errEncoded       = errors.New("the body of the request is compressed, and the gateway has to read it")
	errTooLong       = errors.New("the body of the request is longer than 20 MiB")
	errSilentOwner   = errors.New("the supervisor does not answer what may be spent")
)

// call is one request of a guest.
type call struct {
	gateway *Gateway
	offer   *offer
	caller  Caller
	access  *models.Access
	target  models.Target
	kind    models.Kind
	below   string // the path below the provider's URL
	in      *http.Request
	writer  http.ResponseWriter

	body       []byte
	free       func()      // gives back the room for the body
	ask        *models.Ask // nil: the body is sent as it is
	candidates []models.Candidate
	hold       *models.Hold // nil: nothing is reserved
	limits     models.Limits
	output     int64 // how many tokens of it are reserved
	began      time.Time
}

// Serve answers a request.
func (g *Gateway) Serve(writer http.ResponseWriter, in *http.Request, caller Caller) {
	c := &call{gateway: g, offer: g.offered.Load(), caller: caller, in: in, writer: writer, began: time.Now()}
	place, isPlace := models.PlaceOf(in.URL.EscapedPath())
	if why := c.admit(place, isPlace); why != nil {
		c.refuse(why)
		return
	}
	if c.kind == models.List {
		c.list()
		return
	}
	body, done, why := c.read()
	if why != nil {
		c.refuse(why)
		return
	}
	c.body, c.free = body, sync.OnceFunc(done)
	c.traceBody()
	defer c.free()
	if why := c.choose(); why != nil {
		c.refuse(why)
		return
	}
	if why := c.reserve(); why != nil {
		c.refuse(why)
		return
	}
	c.caller.Note(policy.Allow, in.Method, in.URL.EscapedPath(), "")
	c.pass()
}

// refuse answers for the provider. Nothing is reserved any more then.
func (c *call) refuse(why *refusal) {
	c.release()
	if c.in.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	c.caller.Note(policy.Deny, c.in.Method, c.in.URL.EscapedPath(), why.message)
	c.traceRefusal(why)
	dialect := c.target.Dialect
	if dialect == "" && strings.HasPrefix(c.in.URL.Path, "/"+string(models.Anthropic)) {
		dialect = models.Anthropic
	}
	why.write(c.writer, dialect)
}

// forget drops the body, which is not sent any more. An answer may take long.
func (c *call) forget() {
	c.body = nil
	if c.ask != nil {
		c.ask.Forget()
	}
	c.free()
}

// release gives back what is reserved for a request that was not sent.
func (c *call) release() {
	if c.hold != nil {
		c.gateway.Ledger.Settle(c.hold, models.Amount{}, nil)
		c.hold = nil
	}
}

// admit finds out what is asked for, and whether the sandbox has models at all.
func (c *call) admit(place models.Place, isPlace bool) *refusal {
	var err error
	if c.access, err = c.caller.Access(c.in.Context()); err != nil {
		return notAllowed(err)
	}
	switch {
	case c.access == nil:
		return notAllowed(errNoAccess)
	case c.offer == nil:
		return unavailable(errOffersNothing)
	case !isPlace:
		return &refusal{status: http.StatusNotFound, code: "model_path_unknown", message: errNoPath.Error()}
	}
	if c.target, err = c.offer.Target(place.First); err != nil {
		return &refusal{status: http.StatusNotFound, code: "model_path_unknown", message: err.Error()}
	}
	c.kind, c.below = models.KindOf(c.target.Dialect, c.in.Method, place.Below), place.Below
	return nil
}

func (c *call) read() ([]byte, func(), *refusal) {
	if encoding := c.in.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, nil, malformed(errEncoded)
	}
	tooLong := &refusal{status: http.StatusRequestEntityTooLarge, code: "model_bad_request", message: errTooLong.Error()}
	if c.in.ContentLength > bodyMost {
		return nil, nil, tooLong
	}
	body, done, err := c.caller.Read(c.in.Context(), bodyMost+1)
	if err != nil {
		return nil, nil, malformed(errors.New("the body does not come: " + err.Error()))
	}
	if len(body) > bodyMost {
		done()
		return nil, nil, tooLong
	}
	return body, done, nil
}

// choose finds the models that may serve the request.
func (c *call) choose() *refusal {
	if c.kind == models.Unknown {
		if !c.access.AllowsAll(c.target.Default) {
			return &refusal{
				status: http.StatusForbidden, code: "model_path_not_priced",
				message: "the gateway cannot read which model this path uses, and this sandbox may not use all of them",
			}
		}
		c.candidates = []models.Candidate{{Provider: c.target.Default}}
		return nil
	}
	ask, err := models.ReadAsk(c.kind, c.body)
	if err != nil {
		return malformed(err)
	}
	c.ask = ask
	c.traceAsk()
	if c.candidates, err = c.offer.Choose(c.access, c.target, ask.Model); err != nil {
		why := notAllowed(err)
		why.message += ": " + ask.Model
		return why
	}
	return nil
}

// reserve has the budgets pay for the worst case.
func (c *call) reserve() *refusal {
	if c.kind == models.Count {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(c.in.Context(), allotMost, errSilentOwner)
	defer cancel()
	ledger := c.gateway.Ledger
	// Nothing yet: the limits of a budget are known with its first allotment.
	hold, err := ledger.Reserve(ctx, c.access.Budgets, models.Amount{})
	if err != nil {
		return unpaid(err)
	}
	c.hold = hold
	if _, c.limits = ledger.Left(hold); c.limits == (models.Limits{}) {
		if c.kind != models.Unknown {
			c.output = c.wanted()
		}
		return nil
	}
	if c.kind == models.Unknown {
		return &refusal{
			status: http.StatusForbidden, code: "model_path_not_priced",
			message: "the gateway does not know what requests to this path cost, and a budget bounds what this sandbox may spend",
		}
	}
	if why := c.priced(); why != nil {
		return why
	}
	return c.fit(ctx)
}

// priced drops the models whose price is not known, under a budget of money.
func (c *call) priced() *refusal {
	if !c.limits.Money {
		return nil
	}
	var found []models.Candidate
	for _, each := range c.candidates {
		if each.Price != nil {
			found = append(found, each)
		}
	}
	if len(found) == 0 {
		return &refusal{
			status: http.StatusForbidden, code: "model_not_priced",
			message: "the price of " + c.ask.Model + " is not known, and a budget of money bounds what this sandbox may spend",
		}
	}
	c.candidates = found
	return nil
}

// wanted is how much output the request may have.
func (c *call) wanted() int64 {
	switch {
	case !c.ask.HasOutput():
		return 0
	case c.ask.Most > 0:
		return c.ask.Most
	}
	return outputUsual
}

// fit reserves what the request may cost. One that does not bound its output gets what the budgets afford.
func (c *call) fit(ctx context.Context) *refusal {
	ledger, output := c.gateway.Ledger, c.wanted()
	err := ledger.Extend(ctx, c.hold, c.worst(c.ask.InputMost(), output))
	var spent *models.SpentError
	for errors.As(err, &spent) && c.ask.HasOutput() && c.ask.Most == 0 {
		left, limits := ledger.Left(c.hold)
		if fits := c.affords(left, limits); fits < output {
			output = fits
		} else { // others were faster
			output /= 2
		}
		if output < outputLeast {
			break
		}
		err = ledger.Extend(ctx, c.hold, c.worst(c.ask.InputMost(), output))
	}
	if err != nil {
		return unpaid(err)
	}
	c.output = output
	return nil
}

// worst is what the dearest of the models may cost.
func (c *call) worst(input, output int64) models.Amount {
	var found models.Amount
	for _, each := range c.candidates {
		amount := each.Worst(input, output)
		found.Tokens, found.Nanos = max(found.Tokens, amount.Tokens), max(found.Nanos, amount.Nanos)
	}
	return found
}

// affords is how much output of the dearest of the models is paid for.
func (c *call) affords(left models.Amount, limits models.Limits) int64 {
	found := int64(outputUsual)
	for _, each := range c.candidates {
		found = min(found, each.Affords(left, limits, c.ask.InputMost()))
	}
	return found
}
