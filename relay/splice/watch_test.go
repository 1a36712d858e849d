package splice

import (
	"testing"
	"time"
)

func watched(t *testing.T) (*joined, chan struct{}) {
	t.Helper()
	j := join(t, Checks{})
	j.Release()
	say(t, j.server, "a")
	hear(t, j.guest, "a")
	j.Hold()
	return j, make(chan struct{}, 2)
}

func isTold(told <-chan struct{}, within time.Duration) bool {
	select {
	case <-told:
		return true
	case <-time.After(within):
		return false
	}
}

var (
	closeNotify = "\x15\x03\x03\x00\x02\x01\x00"
	hiddenBye   = "\x17\x03\x03\x00\x13" + "0123456789012345678"
)

func TestDataForAGuestThatSleepsIsNoticedOnceAndKept(t *testing.T) {
	j, told := watched(t)
	j.Watch(func() { told <- struct{}{} })
	if isTold(told, 50*time.Millisecond) {
		t.Fatal("nothing has come")
	}
	say(t, j.server, "wake")
	if !isTold(told, waitMost) {
		t.Fatal("it was not noticed")
	}
	say(t, j.server, " up")
	j.Release()
	hear(t, j.guest, "wake up")
	if isTold(told, 50*time.Millisecond) {
		t.Error("it was told twice")
	}
}

func TestWhatHasComeAlreadyIsNoticed(t *testing.T) {
	j, told := watched(t)
	say(t, j.server, "wake")
	eventually(t, "it has come", func() bool { return j.remote.unread() > 0 })
	j.Watch(func() { told <- struct{}{} })
	if !isTold(told, waitMost) {
		t.Fatal("it was not noticed")
	}
}

func TestUrgentDataIsNoticed(t *testing.T) {
	j, told := watched(t)
	j.Watch(func() { told <- struct{}{} })
	sendUrgent(t, j.server)
	say(t, j.server, "more")
	if !isTold(told, waitMost) {
		t.Fatal("it was not noticed")
	}
}

func TestAnEndIsNoData(t *testing.T) {
	for name, ends := range map[string]func(*joined){
		"stream": func(j *joined) { j.server.CloseWrite() },
		"reset": func(j *joined) {
			j.server.SetLinger(0)
			j.server.Close()
		},
		"announced": func(j *joined) {
			j.server.Write([]byte(closeNotify))
			j.server.Close()
		},
		"announced in secret": func(j *joined) {
			j.server.Write([]byte(hiddenBye))
			j.server.CloseWrite()
		},
		"announced only": func(j *joined) { j.server.Write([]byte(closeNotify)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, told := watched(t)
			j.Watch(func() { told <- struct{}{} })
			ends(j)
			if isTold(told, endMost+200*time.Millisecond) {
				t.Error("it was told as data")
			}
		})
	}
}

func TestWhatOnlyLooksLikeAFarewellIsData(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"by itself": "", "with more behind": "\x17"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, told := watched(t)
			j.Watch(func() { told <- struct{}{} })
			say(t, j.server, hiddenBye)
			time.Sleep(50 * time.Millisecond)
			say(t, j.server, more)
			if !isTold(told, waitMost) {
				t.Error("it was not told")
			}
		})
	}
}

func TestNothingIsToldAfterUnwatch(t *testing.T) {
	for _, first := range []string{"", hiddenBye} {
		j, told := watched(t)
		j.Watch(func() { told <- struct{}{} })
		say(t, j.server, first)
		j.Unwatch()
		j.Unwatch()
		say(t, j.server, "wake")
		if isTold(told, 50*time.Millisecond) {
			t.Error("it was told")
		}
		j.Release()
		hear(t, j.guest, first+"wake")
	}
}

func TestAFarewellIsOneRecordOfTLS(t *testing.T) {
	for data, is := range map[string]bool{
		closeNotify: true, hiddenBye: true, "": false, closeNotify[:6]: false, closeNotify + "x": false,
		"\x17\x03\x03\x00\x02ab": false, "\x16\x03\x03\x00\x02ab": false, "\x15\x02\x03\x00\x02ab": false,
		"\x15\x03\x00\x00\x02ab": false, "\x15\x03\x05\x00\x02ab": false,
	} {
		if IsFarewell([]byte(data)) != is {
			t.Errorf("%q is a farewell: %v", data, !is)
		}
	}
}
