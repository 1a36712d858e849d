package models

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheUsageOfAnAnswerIsRead(t *testing.T) {
	hours, _ := UsageOf(Anthropic, []byte(
		`{"usage":{"input_tokens":1,"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_1h_input_tokens":4}}}`))
	if got := (Price{Input: 100, CacheWrite: 11}).Of(hours); got != 100+5*11+71 { // 4 * 11 * 1.6, rounded up
		t.Errorf("for an hour it costs %d", got)
	}
	for _, c := range []struct {
		dialect Dialect
		body    string
		want    string
	}{
		{OpenAI, `{"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}`, "{6 4 0 3 0} true"},
		{OpenAI, `{"usage":{"input_tokens":10,"output_tokens":3,"input_tokens_details":{"cached_tokens":40}}}`, "{0 10 0 3 0} true"},
		{OpenAI, `{"usage":{"prompt_tokens":10,"total_tokens":10}}`, "{10 0 0 0 0} true"},
		{Anthropic, `{"usage":{"input_tokens":10,"output_tokens":3,"cache_read_input_tokens":7,"cache_creation_input_tokens":5}}`,
			"{10 7 5 3 0} true"},
		{OpenAI, `{"usage":null}`, "{0 0 0 0 0} false"}, {OpenAI, `{"usage":"much"}`, "{0 0 0 0 0} false"}, {OpenAI, `x`, "{0 0 0 0 0} false"},
		{OpenAI, `{"usage":{"prompt_tokens":-1,"completion_tokens":"x","prompt_tokens_details":[1]}}`, "{0 0 0 0 0} false"},
		{OpenAI, `{"usage":{"prompt_tokens":1e300,"completion_tokens":2}}`, "{0 0 0 2 0} true"},
		{OpenAI, `{"message":"x","usage":{"completion_tokens":2}}`, "{0 0 0 2 0} true"},
	} {
		used, ok := UsageOf(c.dialect, []byte(c.body))
		if got := fmt.Sprint(used, ok); got != c.want {
			t.Errorf("%s is %s, not %s", c.body, got, c.want)
		}
	}
}

const chatStream = `data: {"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}

data: {"choices":[{"delta":{"content":"Hello"}}],"usage":null}

data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

`

const responseStream = `event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"Hi"}

event: response.completed
data: {"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":2}}}

`

const messageStream = `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":9,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":12}}

`

func TestAStreamIsReadInWhateverPieces(t *testing.T) {
	without := strings.Replace(chatStream, chatStream[strings.Index(chatStream, `data: {"choices":[],`):strings.Index(chatStream, "data: [DONE]")], "", 1)
	for _, c := range []struct {
		dialect          Dialect
		strips           bool
		text, want, used string
	}{
		{OpenAI, false, chatStream, chatStream, "{5 4 0 2 0} true"}, {OpenAI, true, chatStream, without, "{5 4 0 2 0} true"},
		{OpenAI, false, responseStream, responseStream, "{9 0 0 2 0} true"},
		{Anthropic, false, messageStream, messageStream, "{9 5 0 12 0} true"},
		{Anthropic, false, messageStream[:300], messageStream[:300], "{9 5 0 1 0} false"},
		{OpenAI, true, strings.TrimSpace(chatStream), strings.TrimSpace(without), "{5 4 0 2 0} true"},
		{OpenAI, false, strings.TrimSpace(responseStream), strings.TrimSpace(responseStream), "{9 0 0 2 0} true"},
		{OpenAI, true, "rubbish\n\n\n\x00data: {\n\ndata: [1]\n\ndata: {]}", "rubbish\n\n\n\x00data: {\n\ndata: [1]\n\ndata: {]}", "{0 0 0 0 0} false"},
	} {
		for _, ends := range []string{"\n", "\r\n"} {
			text, want := strings.ReplaceAll(c.text, "\n", ends), strings.ReplaceAll(c.want, "\n", ends)
			for _, size := range []int{1, 2, 7, 64, 1 << 20} {
				stream, got := NewStream(c.dialect, c.strips), ""
				for at := 0; at < len(text); at += size {
					got += string(stream.Next([]byte(text[at:min(at+size, len(text))])))
				}
				got += string(stream.Rest())
				used, ok := stream.Usage()
				if got != want || fmt.Sprint(used, ok) != c.used {
					t.Fatalf("in pieces of %d: %q with %v %v, not %q with %s", size, got, used, ok, want, c.used)
				}
			}
		}
	}
}

func TestAStreamPassesEventsAtOnceAndHoldsNoLongOne(t *testing.T) {
	stream := NewStream(OpenAI, true)
	if got := string(stream.Next([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\n\ndata: "))); !strings.HasSuffix(got, "}\n\n") {
		t.Errorf("an event that has ended is held: %q", got)
	}
	piece := []byte(strings.Repeat("x", 1<<20))
	passed := 0
	for range 10 {
		passed += len(stream.Next(piece))
		if len(stream.held)+len(stream.line)+len(stream.data) > 2*eventMost {
			t.Fatal("it holds too much")
		}
	}
	if passed += len(stream.Next([]byte("\n\n"))); passed != 10<<20+8 {
		t.Errorf("%d bytes passed", passed)
	}
	stream.Next([]byte(chatStream))
	if used, ok := stream.Usage(); !ok || used.Output != 2 {
		t.Errorf("behind a long event it reads %v", used)
	}
	if stream.OutputLeast() < 2 || stream.Output() < stream.OutputLeast() {
		t.Errorf("it estimates %d and %d", stream.OutputLeast(), stream.Output())
	}
}

func FuzzAStreamIsPassedOnUnchanged(f *testing.F) {
	f.Add(chatStream)
	f.Add(messageStream)
	f.Fuzz(func(t *testing.T, text string) {
		stream, got := NewStream(Anthropic, false), ""
		for i := range len(text) {
			got += string(stream.Next([]byte(text[i : i+1])))
		}
		if got += string(stream.Rest()); got != text {
			t.Fatalf("%q", got)
		}
		whole := NewStream(OpenAI, true)
		whole.Next([]byte(text))
		whole.Rest()
	})
}

func TestNoSumFlowsOver(t *testing.T) {
	price := Price{Input: most, CacheRead: 1, CacheWrite: 2, Output: most}
	if got := price.Of(Usage{most, most, most, most, most}); got != most {
		t.Errorf("it costs %d", got)
	}
	if got := price.Worst(most, most); got != (Amount{most, most}) {
		t.Errorf("at worst it costs %v", got)
	}
	price = Price{Input: 2, CacheWrite: 3, Output: 10}
	if got := price.Worst(100, 50); got != (Amount{150, 1000}) {
		t.Errorf("at worst it costs %v", got)
	}
	if got := price.Of(Usage{Input: 100, CacheRead: 5, CacheWrite: 10, Output: 50}); got != 730 {
		t.Errorf("it costs %d", got)
	}
	if a, b := price.Affords(Amount{1000, 1000}, Limits{Money: true}, 100), price.Affords(Amount{120, 1000}, Limits{true, true}, 100); a != 50 || b != 20 {
		t.Errorf("it affords %d and %d", a, b)
	}
}

func TestTheUsageOfALongAnswerIsReadAtItsEnd(t *testing.T) {
	for _, dots := range []int{0, 10, 40 << 10, 3 << 20} {
		var tail Tail
		text := `{"data":["` + strings.Repeat(".", dots) + `\"usage\":{}"],"usage":{"prompt_tokens":7}}`
		for len(text) > 0 {
			size := min(len(text), 10_000)
			tail.Next([]byte(text[:size]))
			text = text[size:]
		}
		if used, ok := tail.Usage(OpenAI); !ok || used.Input != 7 || len(tail.text) > wholeMost {
			t.Errorf("of %d bytes: %v", dots, used)
		}
	}
	var tail Tail
	tail.Next([]byte(strings.Repeat(`"usage"`, 1<<20)))
	if used, ok := tail.Usage(OpenAI); ok {
		t.Errorf("rubbish is %v", used)
	}
}

func TestAStreamIsDoneWithItsLastUsageBeforeItEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect Dialect
		stream  string
	}{{OpenAI, chatStream}, {OpenAI, responseStream}, {Anthropic, messageStream}} {
		stream := NewStream(c.dialect, false)
		for event := range strings.SplitAfterSeq(c.stream, "\n\n") {
			before := stream.IsDone()
			stream.Next([]byte(event))
			if _, told := stream.Usage(); stream.IsDone() && !told || before && !stream.IsDone() {
				t.Errorf("after %q it is done without its usage, or no longer", event)
			}
		}
		if !stream.IsDone() {
			t.Errorf("it is not done: %q", c.stream)
		}
	}
	early := NewStream(OpenAI, false)
	early.Next([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n"))
	if early.IsDone() {
		t.Error("a usage beside output ends nothing")
	}
}
