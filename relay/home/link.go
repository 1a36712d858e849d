package home

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"atoll/edge/forms"
	"atoll/edge/seen"
	"atoll/policy"
	"atoll/relay/control"
	"atoll/relay/guest"
	"atoll/relay/names"
	"atoll/relay/nameserver"
	"atoll/relay/upstream"
)

// partedMost is how many connections are remembered that a cut has ended. A guest has fewer.
const partedMost = 2048

// Link is the network of one sandbox: its guest, the names that it knows, and its nameserver.
type Link struct {
	id       string
	home     *Home
	sockets  *sockets
	news     *news
	egress   *guest.Egress
	guest    *guest.Guest
	names    *names.Table
	server   *nameserver.Server
	judged   judged
	canaries atomic.Pointer[policy.Canaries]

	ruled  chan struct{} // closed with the first rules: connections before them wait
	mu     sync.Mutex
	isSet  bool // it is closed
	proxy  proxy
	isCut  bool
	parted []guest.Flow // ended by cuts; the guest gets resets for them again when the link is mended
}

// proxy is the upstream proxy of a guest's rules.
type proxy struct {
	key     string // changes with the rest, and shows nothing of it; empty: there is none
	at      *upstream.Proxy
	ceiling *policy.Gatekeeper
	text    string // of the ceiling
	number  int
}

var _ guest.Owner = (*Link)(nil)

// open makes a link of its four descriptors. It accepts and answers nothing before it has rules.
func (h *Home) open(id string, files []*os.File) (*Link, error) {
	inherited, err := socketsOf(files)
	if err != nil {
		return nil, err
	}
	table, err := names.Open(inherited.names, time.Now)
	if err != nil {
		inherited.close()
		return nil, err
	}
	made := &Link{
		id: id, home: h, sockets: inherited, names: table, news: newNews(h.events, id), ruled: make(chan struct{}),
	}
	made.canaries.Store(policy.NewCanaries(nil))
	made.egress = guest.NewEgress(table, h.outside.resolver, h.outside.isOwn)
	made.guest = guest.New(guest.Parts{
		Listener: inherited.guests, Egress: made.egress, Edge: &made.judged, Dialer: dialer{made}, Owner: made,
		Ready: made.ruled, Original: h.parts.Original,
	})
	made.server = nameserver.Serve(nameserver.Parts{
		Datagrams: inherited.questions, Listener: inherited.streams, Client: h.outside.client,
		Resolver: h.outside.resolver, Names: table, Judge: judge{made}, Ready: made.ruled,
	})
	return made, nil
}

func (l *Link) close() {
	l.guest.Close()
	l.server.Close()
	l.mu.Lock()
	l.judged.close()
	l.mu.Unlock()
	if err := l.names.Close(); err != nil {
		l.home.events.log(fmt.Sprintf("link %s: close the file of names: %v", l.id, err))
	}
	l.news.forget()
}

// shut allows nothing until there are other rules.
func (l *Link) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decideBy(guest.Rules{Bounds: &policy.Bounds{Own: policy.NewGatekeeper(policy.Terms{})}})
}

// setRules decides by these rules from now on, and ends what they do not allow.
func (l *Link) setRules(sandbox string, version int64, content *control.Rules) error {
	bounds, err := content.Bounds()
	if err != nil {
		return err
	}
	providers, err := content.Providers()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The edge is told before a connection may be judged by them.
	l.judged.set(l.home.parts.Edges, l.guest, sandbox)
	l.canaries.Store(policy.NewCanaries(content.Canaries))
	l.proxy.set(content, bounds.Ceiling)
	l.decideBy(guest.Rules{
		Bounds: bounds, Proxy: l.proxy.key, Version: version, Canaries: finder(content.Canaries), Models: providers,
	})
	return nil
}

// finder is nil if there is nothing to look for.
func finder(canaries []string) *forms.Finder {
	if len(canaries) == 0 {
		return nil
	}
	values := make([][]byte, len(canaries))
	for i, each := range canaries {
		values[i] = []byte(each)
	}
	return forms.NewFinder(values)
}

// decideBy decides by these rules from now on. The lock is held.
func (l *Link) decideBy(rules guest.Rules) {
	l.egress.Set(rules)
	l.guest.JudgeAgain()
	if !l.isSet {
		l.isSet = true
		close(l.ruled)
	}
}

// set takes the proxy of rules over. The key stays if it is the same one, under the same ceiling.
func (p *proxy) set(content *control.Rules, ceiling *policy.Gatekeeper) {
	text, err := json.Marshal(content.Ceiling)
	isSame := err == nil && p.at.Equal(content.Proxy) && p.text == string(text)
	p.at, p.ceiling, p.text = content.Proxy, ceiling, string(text)
	switch {
	case p.at == nil:
		p.key = ""
	case !isSame || p.key == "":
		p.number++
		p.key = strconv.Itoa(p.number)
	}
}

// cut lets nothing pass, whatever the rules say.
func (l *Link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	l.egress.Cut(true)
	for _, flow := range l.guest.Flows() {
		// What an earlier cut has reset may not have ended yet.
		if len(l.parted) < partedMost && !slices.Contains(l.parted, flow) {
			l.parted = append(l.parted, flow)
		}
	}
	l.guest.Reset()
}

// cutNow tells whether nothing passes, whatever the rules say.
func (l *Link) cutNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// mend lets the rules decide again, and gives the connections that were cut.
func (l *Link) mend() []guest.Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
	l.egress.Cut(false)
	parted := l.parted
	l.parted = nil
	l.settle()
	return parted
}

// settle has no further owner told why the link was cut.
func (l *Link) settle() {
	l.news.change(func() { l.news.unplug = sticky{} })
}

// kept is how many connections the link would only reset; nil if it has others, or some were cut of which the guest is told
// when the link is mended.
func (l *Link) kept(known []guest.Flow) *int {
	l.mu.Lock()
	isKept := l.isCut || len(l.parted) > 0
	l.mu.Unlock()
	if count, ok := l.guest.Kept(known); ok && !isKept {
		return &count
	}
	return nil
}

// Tell keeps a decision. False is that there is no room for it, and that it is only counted.
func (l *Link) Tell(told guest.Told) bool {
	entry := seen.Entry{
		Action: told.Admission.Action, Host: told.Host, Port: told.Port, Scheme: told.Scheme, Method: told.Method,
		Reason: told.Admission.Reason, Observed: told.Admission.Observed, Ceiling: told.Admission.Ceiling,
	}
	if entry.Observed { // the action that the policy would have taken
		entry.Action = policy.Deny
	}
	if rule := told.Admission.Rule; rule != nil {
		entry.Rule = &rule.Index
	}
	return l.news.note(entry)
}

// Unplug cuts the link. This needs no owner: the present or the next one hears of it.
func (l *Link) Unplug(reason string) {
	l.cut()
	l.news.change(func() { l.news.unplug.set(reason) })
}

// Wake has the owner told that data came for a guest that sleeps.
func (l *Link) Wake(from string) {
	l.news.change(func() { l.news.wake.set(from) })
}

// awake forgets the reason for a guest's wake.
func (l *Link) awake() {
	l.news.change(func() { l.news.wake = sticky{} })
}
