package serve

import (
	"atoll/edge/control"
	"atoll/edge/models"
)

// GiveBack has what is not used of budgets go back to the owner, who ends.
func (e *Edge) GiveBack() { e.models.Ledger.GiveBack() }

// tellModels sends what budgets need, what requests to models have cost, and what goes back.
func (e *Edge) tellModels(to Owner) error {
	for _, each := range e.models.Ledger.Take() {
		var message any
		switch said := each.(type) {
		case models.Need:
			message = control.Need{Op: "need", Need: said}
		case models.Bill:
			message = control.Billed{Op: "billed", Bill: said}
		case models.Return:
			message = control.Returned{Op: "returned", Return: said}
		}
		if err := to.Send(message); err != nil {
			return err
		}
	}
	return nil
}
