package sandbox

import (
	"fmt"
	"slices"

	"github.com/yuin/gopher-lua/ast"
)

// Names that no script can spell: what stands for a concatenation, and for an
// assignment to a computed index.
const (
	concatName = "(concatenate)"
	setName    = "(set)"
	keyName    = "(key)"
)

// deepest nesting of a script: the compiler is recursive.
const deepest = 200

// harden replaces, in a parsed chunk, the operations that can take any amount
// of memory in one step by calls of functions that account for it.
func harden(chunk []ast.Stmt) error {
	h := hardener{}
	h.block(chunk)
	return h.err
}

type hardener struct {
	depth int
	err   error
}

func (h *hardener) enter(at ast.PositionHolder) bool {
	h.depth++
	if h.depth > deepest && h.err == nil {
		h.err = &Error{Line: at.Line(), Reason: fmt.Sprintf("nested deeper than %d", deepest)}
	}
	return h.err == nil
}

func (h *hardener) leave() { h.depth-- }

func (h *hardener) block(stmts []ast.Stmt) {
	for i := range stmts {
		h.statement(&stmts[i])
	}
}

func (h *hardener) statement(at *ast.Stmt) {
	defer h.leave()
	if !h.enter(*at) {
		return
	}
	switch s := (*at).(type) {
	case *ast.AssignStmt:
		h.expressions(s.Rhs)
		h.assignment(at, s)
	case *ast.LocalAssignStmt:
		h.expressions(s.Exprs)
	case *ast.FuncCallStmt:
		h.expression(&s.Expr)
	case *ast.DoBlockStmt:
		h.block(s.Stmts)
	case *ast.WhileStmt:
		h.expression(&s.Condition)
		h.block(s.Stmts)
	case *ast.RepeatStmt:
		h.expression(&s.Condition)
		h.block(s.Stmts)
	case *ast.IfStmt:
		h.expression(&s.Condition)
		h.block(s.Then)
		h.block(s.Else)
	case *ast.NumberForStmt:
		h.expression(&s.Init)
		h.expression(&s.Limit)
		h.expression(&s.Step)
		h.block(s.Stmts)
	case *ast.GenericForStmt:
		h.expressions(s.Exprs)
		h.block(s.Stmts)
	case *ast.FuncDefStmt:
		h.block(s.Func.Stmts)
	case *ast.ReturnStmt:
		h.expressions(s.Exprs)
	}
}

func (h *hardener) expressions(list []ast.Expr) {
	for i := range list {
		h.expression(&list[i])
	}
}

func (h *hardener) expression(at *ast.Expr) {
	if *at == nil {
		return
	}
	defer h.leave()
	if !h.enter(*at) {
		return
	}
	switch e := (*at).(type) {
	case *ast.AttrGetExpr:
		h.expression(&e.Object)
		h.expression(&e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			h.expression(&f.Value)
			if f.Key != nil {
				h.expression(&f.Key)
				f.Key = guardKey(f.Key)
			}
		}
	case *ast.FuncCallExpr:
		h.expression(&e.Func)
		h.expression(&e.Receiver)
		h.expressions(e.Args)
	case *ast.LogicalOpExpr:
		h.expression(&e.Lhs)
		h.expression(&e.Rhs)
	case *ast.RelationalOpExpr:
		h.expression(&e.Lhs)
		h.expression(&e.Rhs)
	case *ast.ArithmeticOpExpr:
		h.expression(&e.Lhs)
		h.expression(&e.Rhs)
	case *ast.UnaryMinusOpExpr:
		h.expression(&e.Expr)
	case *ast.UnaryNotOpExpr:
		h.expression(&e.Expr)
	case *ast.UnaryLenOpExpr:
		h.expression(&e.Expr)
	case *ast.FunctionExpr:
		h.block(e.Stmts)
	case *ast.StringConcatOpExpr:
		*at = h.concatenation(e)
	}
}

// concatenation flattens a .. b .. c, which nests to the right, into one call.
func (h *hardener) concatenation(e *ast.StringConcatOpExpr) ast.Expr {
	var args []ast.Expr
	for {
		args = append(args, e.Lhs)
		next, ok := e.Rhs.(*ast.StringConcatOpExpr)
		if !ok {
			args = append(args, e.Rhs)
			break
		}
		e = next
	}
	h.expressions(args)
	// The machine has so many registers: long ones are put together in groups.
	const most = 50
	for len(args) > most {
		var groups []ast.Expr
		for group := range slices.Chunk(args, most) {
			groups = append(groups, concatenate(group))
		}
		args = groups
	}
	return concatenate(args)
}

func concatenate(args []ast.Expr) ast.Expr {
	for i := range args {
		args[i] = single(args[i])
	}
	return call(args[0], concatName, args...)
}

// single has an expression give exactly one value, as an operand does.
func single(e ast.Expr) ast.Expr {
	switch x := e.(type) {
	case *ast.FuncCallExpr:
		x.AdjustRet = true
	case *ast.Comma3Expr:
		x.AdjustRet = true
	}
	return e
}

// assignment guards what assigns to a computed index.
func (h *hardener) assignment(at *ast.Stmt, s *ast.AssignStmt) {
	for i := range s.Lhs {
		h.expression(&s.Lhs[i])
	}
	if target, ok := s.Lhs[0].(*ast.AttrGetExpr); ok && len(s.Lhs) == 1 && len(s.Rhs) == 1 && !isName(target.Key) {
		set := &ast.FuncCallStmt{Expr: call(target, setName, single(target.Object), single(target.Key), single(s.Rhs[0]))}
		set.SetLine(s.Line())
		set.SetLastLine(s.LastLine())
		*at = set
		return
	}
	for _, l := range s.Lhs {
		if target, ok := l.(*ast.AttrGetExpr); ok {
			target.Key = guardKey(target.Key)
		}
	}
}

func isName(key ast.Expr) bool {
	_, ok := key.(*ast.StringExpr)
	return ok
}

func guardKey(key ast.Expr) ast.Expr {
	if isName(key) {
		return key
	}
	return call(key, keyName, single(key))
}

func call(at ast.PositionHolder, name string, args ...ast.Expr) *ast.FuncCallExpr {
	fn := &ast.IdentExpr{Value: name}
	c := &ast.FuncCallExpr{Func: fn, Args: args, AdjustRet: true}
	for _, n := range []ast.PositionHolder{fn, c} {
		n.SetLine(at.Line())
		n.SetLastLine(at.LastLine())
	}
	return c
}
