package sandbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Errors of scripts that ask for too much.
var (
	ErrSteps  = errors.New("the script takes too many steps")
	ErrMemory = errors.New("the script takes too much memory")
	ErrTime   = errors.New("the script takes too long")
)

// Limits of one call.
type Limits struct {
	// Steps are instructions of the Lua machine, and of matching patterns.
	Steps int64
	// Bytes is how much memory a call may take up, given back or not.
	Bytes int64
	// Time bounds a call by the clock, in case a single step is slow.
	Time time.Duration
	// Machines is how many calls run at once; others wait.
	Machines int
	// Source is the longest script.
	Source int
}

// DefaultLimits are ample for what interprets one object.
func DefaultLimits() Limits {
	return Limits{Steps: 2_000_000, Bytes: 64 << 20, Time: 5 * time.Second, Machines: 4, Source: 128 << 10}
}

// Function is offered to scripts; arguments and results are JSON values.
type Function func(args []any) ([]any, error)

// Sandbox holds the machines.
type Sandbox struct {
	limits   Limits
	modules  map[string]map[string]Function
	machines chan *lua.LState // nil stands for one that is not made yet
}

// New makes a sandbox whose scripts can require modules.
func New(limits Limits, modules map[string]map[string]Function) *Sandbox {
	// A list that skips indexes fills what it has skipped.
	lua.MaxArrayIndex = largestList
	s := &Sandbox{limits: limits, modules: modules, machines: make(chan *lua.LState, limits.Machines)}
	for range limits.Machines {
		s.machines <- nil
	}
	return s
}

// Script is a compiled script that defines a function.
type Script struct {
	function string
	proto    *lua.FunctionProto
}

// Error is what is wrong with a script, or went wrong in it.
type Error struct {
	Line   int // 0 when it is not known
	Reason string
	cause  error
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return e.Reason
}

// Unwrap gives ErrSteps, ErrMemory or ErrTime.
func (e *Error) Unwrap() error { return e.cause }

// Compile checks a script, which has to define the function.
func (s *Sandbox) Compile(ctx context.Context, source, function string) (script *Script, err error) {
	if len(source) > s.limits.Source {
		return nil, &Error{Reason: fmt.Sprintf("the script is longer than %d bytes", s.limits.Source)}
	}
	defer func() {
		if r := recover(); r != nil { // of the parser, on odd input
			script, err = nil, &Error{Reason: fmt.Sprintf("the script cannot be parsed: %v", r)}
		}
	}()
	chunk, err := parse.Parse(strings.NewReader(source), function)
	if err != nil {
		return nil, syntaxError(source, err)
	}
	if err := harden(chunk); err != nil {
		return nil, err
	}
	proto, err := lua.Compile(chunk, function)
	if err != nil {
		return nil, compileError(err)
	}
	script = &Script{function: function, proto: proto}
	return script, s.run(ctx, func(m *machine) error {
		_, err := m.define(script)
		return err
	})
}

// Call calls the script's function. A result that is an empty table becomes what
// stands at the same place in an argument, and is left out when nothing does.
func (s *Sandbox) Call(ctx context.Context, script *Script, args ...any) ([]any, error) {
	var out []any
	err := s.run(ctx, func(m *machine) error {
		fn, err := m.define(script)
		if err != nil {
			return err
		}
		values := make([]lua.LValue, 0, len(args))
		for _, a := range args {
			v, err := m.toLua(a, 0)
			if err != nil {
				return err
			}
			values = append(values, v)
		}
		top := m.state.GetTop()
		if err := m.state.CallByParam(lua.P{Fn: fn, NRet: lua.MultRet, Protect: true}, values...); err != nil {
			return m.failure(err)
		}
		for i := top + 1; i <= m.state.GetTop(); i++ {
			v, err := m.fromLua(m.state.Get(i), args, 0)
			if err != nil {
				return &Error{Reason: fmt.Sprintf("result %d: %v", i-top, err), cause: m.meter.over}
			}
			out = append(out, v)
		}
		return nil
	})
	return out, err
}

// run lends a machine. One that has failed is thrown away.
func (s *Sandbox) run(ctx context.Context, fn func(*machine) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	var state *lua.LState
	select {
	case state = <-s.machines:
	case <-ctx.Done():
		return &Error{Reason: "no machine is free: " + ctx.Err().Error(), cause: ErrTime}
	}
	defer func() {
		r := recover()
		if r != nil {
			err = &Error{Reason: fmt.Sprintf("the script has broken the machine: %v", r)}
		}
		if err != nil && state != nil {
			state.Close()
			state = nil
		}
		s.machines <- state
	}()
	if state == nil {
		state = newState()
	}
	m := &machine{state: state, meter: newMeter(ctx, s.limits), lists: map[*lua.LTable]bool{}}
	state.SetTop(0)
	state.SetContext(m.meter) //nolint:contextcheck // the meter wraps it
	m.furnish(s.modules)
	return fn(m)
}

// machine is one call.
type machine struct {
	state *lua.LState
	env   *lua.LTable
	meter *meter
	lists map[*lua.LTable]bool // tables that were JSON lists
}

// define runs the chunk, which defines the function.
func (m *machine) define(script *Script) (*lua.LFunction, error) {
	chunk := m.state.NewFunctionFromProto(script.proto)
	chunk.Env = m.env
	if err := m.state.CallByParam(lua.P{Fn: chunk, NRet: 0, Protect: true}); err != nil {
		return nil, m.failure(err)
	}
	fn, ok := m.env.RawGetString(script.function).(*lua.LFunction)
	if !ok {
		return nil, &Error{Reason: fmt.Sprintf("the script does not define function %s", script.function)}
	}
	return fn, nil
}

var located = regexp.MustCompile(`^[A-Za-z]+:(\d+): `)

// failure turns an error of the machine into ours.
func (m *machine) failure(err error) error {
	message := err.Error()
	if api := (*lua.ApiError)(nil); errors.As(err, &api) && api.Object != nil && api.Object != lua.LNil {
		message = api.Object.String()
	}
	message, _, _ = strings.Cut(message, "\nstack traceback:")
	e := &Error{Reason: truncate(message), cause: m.meter.over}
	if at := located.FindStringSubmatch(message); at != nil {
		e.Line, _ = strconv.Atoi(at[1])
		e.Reason = truncate(message[len(at[0]):])
	}
	return e
}

// truncate: a script may raise any string.
func truncate(s string) string {
	const most = 512
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

func syntaxError(source string, err error) error {
	if p := (*parse.Error)(nil); errors.As(err, &p) {
		if p.Pos.Line <= 0 {
			return &Error{Line: strings.Count(strings.TrimRight(source, "\n"), "\n") + 1, Reason: "the script ends too early"}
		}
		reason := p.Message
		if p.Token != "" {
			reason = fmt.Sprintf("%s near %q", p.Message, p.Token)
		}
		return &Error{Line: p.Pos.Line, Reason: truncate(reason)}
	}
	return &Error{Reason: truncate(err.Error())}
}

func compileError(err error) error {
	if c := (*lua.CompileError)(nil); errors.As(err, &c) {
		return &Error{Line: c.Line, Reason: truncate(c.Message)}
	}
	return &Error{Reason: truncate(err.Error())}
}

func newState() *lua.LState {
	l := lua.NewState(lua.Options{
		SkipOpenLibs: true, CallStackSize: 160, MinimizeStackMemory: true,
		RegistrySize: 512, RegistryMaxSize: 32 << 10, RegistryGrowStep: 1024,
	})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
		lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath, lua.OsLibName: lua.OpenOs,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	return l
}
